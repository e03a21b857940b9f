"""An event of a service's record in JSON, from the parts that all such services tell.

Shared by the sources of cloud services: each says which of its fields is which part, and this
makes of them the columns that OCSF asks of a class, the observables, and what is left.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ingest.parsing.ocsf import (
    A_HASH,
    A_HOST,
    A_PATH,
    A_RESOURCE,
    A_URL,
    A_USER,
    AN_AGENT,
    API,
    AUTHENTICATION,
    FAILURE,
    FILE_HOSTING,
    INFORMATIONAL,
    LOW,
    OTHER,
    SUCCESS,
    UNKNOWN,
    address,
    kept,
    metadata,
)
from ingest.parsing.source import Event
from ingest.parsing.timestamps import Stamp
from ingest.sources.cloud.common import Fields, mail, remains, take_text, unnamed
from ingest.sources.shared.firewall import ends_seen, located

_PORTED = re.compile(r"\[?(?P<ip>[0-9A-Fa-f:.]{2,45}?)\]?(?::(?P<port>\d{1,5}))?", re.ASCII)
_GOOD = re.compile(r"succe\w*|true|ok|0|passed?|allow\w*|completed?|granted", re.IGNORECASE)
_BAD = re.compile(
    r"fail\w*|false|error|den(?:y|ied)|block\w*|reject\w*|partiallysucceeded|drop\w*|timeout",
    re.IGNORECASE,
)


def status_of(word: object) -> int:
    """The outcome that a product's word is; unknown where it says neither."""
    text = str(word) if word is not None else ""
    if _GOOD.fullmatch(text):
        return SUCCESS
    return FAILURE if _BAD.fullmatch(text) else UNKNOWN


def take_end(fields: Fields, *paths: tuple[str, ...], **leaves: Any) -> Fields | None:
    """The address at the first of `paths` that has one, with a port behind it, as an endpoint.

    An address and its port may stand in one text: `10.0.0.5:443`, `[2001:db8::5]:443`.
    """
    for path in paths:
        value = take_text(fields, *path)
        if value is None:
            continue
        ip, port = address(value.strip()), None
        match = None if ip else _PORTED.fullmatch(value.strip())
        if match:
            ip, port = address(match["ip"]), match["port"]
        if ip:
            number = int(port) if port and int(port) <= 65535 else None
            return kept(**({"ip": ip, "port": number} | kept(**leaves)))
        # Taken, and no address: back where it was.
        _put(fields, path, value)
    return kept(**leaves) or None


def _put(fields: Fields, path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        fields = fields.setdefault(name, {})
    fields[path[-1]] = value


def person(
    name: str | None, uid: str | None = None, full: str | None = None, **more: Any
) -> Fields | None:
    """A user; None where nothing is known of one."""
    return kept(
        name=name or full or uid, uid=uid, full_name=full, email_addr=mail(name), **more
    ) or (None)


@dataclass(slots=True)
class CloudRecord:
    """One record of `product`; `fields` is what has not been used yet."""

    product: Mapping[str, str]
    fields: Fields
    stamp: Stamp

    def event(
        self,
        class_uid: int,
        activity: int,
        *,
        about: Mapping[str, str | None],
        message: str,
        status: int | None = None,
        severity: int = INFORMATIONAL,
        source: Fields | None = None,
        target: Fields | None = None,
        user: Fields | None = None,
        by: Fields | None = None,
        agent: str | None = None,
        request: Fields | None = None,
        operation: str | None = None,
        service: str | None = None,
        resources: Sequence[Fields] | None = None,
        **columns: Any,
    ) -> Event:
        """The event of the record. `by` acts, `user` is acted upon; `about` goes to metadata."""
        if class_uid == AUTHENTICATION:
            # OCSF asks for a user of a login, whatever the service tells.
            user = user or by or {"name": "unknown"}
            columns.setdefault("service", {"name": service or self.product["name"]})
        elif class_uid == API:
            source = unnamed(source)
            named: Fields = {
                "operation": operation or message,
                "service": {"name": service} if service else None,
            }
            columns["api"] = named | (columns.get("api") or {})
        if activity == OTHER and "activity_name" not in columns:
            columns["activity_name"] = operation
        if status == FAILURE and severity < LOW:
            severity = LOW
        request = kept(**((request or {}) | kept(user_agent=agent))) or None
        url: Fields = (request or {}).get("url") or {}
        actor: Fields | None = {"user": by} if by else None
        # OCSF asks for an actor of both: where nobody is named, the service did it itself.
        if class_uid in (API, FILE_HOSTING) and actor is None:
            actor = {"invoked_by": service or self.product["name"]}
        return located(
            class_uid,
            activity,
            self.stamp,
            severity_id=severity,
            status_id=status,
            message=message,
            metadata=metadata(self.product, self.stamp, **about),
            src_endpoint=source,
            dst_endpoint=target,
            user=user,
            actor=actor,
            http_request=request,
            resources=list(resources) if resources else None,
            observables=ends_seen(
                source,
                target,
                by,
                ("user.name", A_USER, (user or {}).get("name")),
                ("http_request.user_agent", AN_AGENT, (request or {}).get("user_agent")),
                ("http_request.url.url_string", A_URL, url.get("url_string")),
                ("http_request.url.hostname", A_HOST, url.get("hostname")),
                ("query.hostname", A_HOST, (columns.get("query") or {}).get("hostname")),
                ("file.path", A_PATH, (columns.get("file") or {}).get("path")),
                *(
                    ("file.hashes", A_HASH, element["value"])
                    for element in (columns.get("file") or {}).get("hashes") or ()
                ),
                *(
                    ("resources[].uid", A_RESOURCE, element.get("uid"))
                    for element in resources or ()
                ),
            ),
            unmapped=remains(self.fields),
            **columns,
        )
