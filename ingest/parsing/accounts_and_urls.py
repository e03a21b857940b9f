"""What is written in one way by one product and in pieces by another: accounts and addresses of
pages. Taken apart in one place, so that a search finds both.
"""

from __future__ import annotations

import re
from typing import Any

from ingest.parsing.ocsf import A_HOST, A_USER
from ingest.parsing.source import Event

_ACCOUNT = re.compile(r"(?P<domain>[^\\/@\x00-\x1f]{1,255})\\{1,2}(?P<name>[^\\/]{1,255})")
"""`DOMAIN\\user`, as Windows and all that ask it write an account; its domain has no slash."""
_URL = re.compile(
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,15})://)?(?:[^/?#@\s]{0,255}@)?"
    r"(?P<hostname>\[[0-9A-Fa-f:.]{2,45}\]|[^/?#:@\[\]\s]{1,253})(?::(?P<port>\d{1,5}))?"
    r"(?P<path>/[^?#]*)?(?:\?(?P<query_string>[^#]*))?(?:#.*)?",
    re.DOTALL,
)


def split_accounts(event: Event) -> bool:
    """Splits `DOMAIN\\user` into its domain and its name, in all users of an event.

    Whether there was one. So a person is one user to rules, whichever product wrote the line.
    """
    actor = event.get("actor") or {}
    process = event.get("process") or {}
    changed = False
    for owner in (event, actor, process):
        user: dict[str, Any] = owner.get("user") or {}
        name = user.get("name")
        if not name or "\\" not in name or user.get("domain"):
            continue
        match = _ACCOUNT.fullmatch(name)
        if match:
            owner["user"] = user | match.groupdict()
            changed = True
            # What is searched for is the account alone; the domain stands beside it.
            event["observables"] = [
                seen | {"value": match["name"]}
                if seen["type_id"] == A_USER and seen["value"] == name
                else seen
                for seen in event.get("observables") or ()
            ] or None
    return changed


def split_url(event: Event) -> None:
    """Takes the URL of a request apart where its reader left it whole; what is there stays."""
    request = event.get("http_request") or {}
    url: dict[str, Any] = request.get("url") or {}
    text = url.get("url_string")
    if not text or url.get("path") or len(text) > 65536:
        return
    # Without a scheme only what begins with the host that the log names is a URL of it.
    host = url.get("hostname")
    if "://" not in text[:20] and not (host and text.startswith(host)):
        return
    match = _URL.fullmatch(text)
    if match is None:
        return
    parts: dict[str, Any] = {name: part for name, part in match.groupdict().items() if part}
    # A host that the log names elsewhere is surer than one in the text of a request.
    spelled = parts.get("scheme") or url.get("scheme")
    parts |= {name: part for name, part in url.items() if part is not None}
    if spelled:
        parts["scheme"] = spelled
    parts["hostname"] = parts["hostname"].strip("[]")
    if type(parts.get("port")) is str:
        parts["port"] = int(parts["port"])
        if parts["port"] > 65535:
            del parts["port"]
    event["http_request"] = request | {"url": parts}
    name = "http_request.url.hostname"
    seen = event.get("observables") or []
    if not host and all(one["name"] != name for one in seen):
        about = {"name": name, "type": "Hostname", "type_id": A_HOST, "value": parts["hostname"]}
        event["observables"] = [*seen, about]
