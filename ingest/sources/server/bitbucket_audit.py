"""Bitbucket Data Center's audit log: `atlassian-bitbucket/log/audit/*.audit.log`, an event a line.

https://confluence.atlassian.com/bitbucketserver/view-and-configure-the-audit-log-776640417.html
and https://confluence.atlassian.com/bitbucketserver/audit-log-events-776640423.html . What was
done is `auditType.action`, in words; a login names its user as the author or the object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ingest.parsing.ocsf import API, AUTHENTICATION, FAILURE, SUCCESS, kept
from ingest.parsing.source import Context, Event, Unreadable
from ingest.parsing.timestamps import stamp_epoch
from ingest.sources.cloud.common import (
    EnvelopedSource,
    Fields,
    activity_of,
    listed,
    look,
    look_text,
    take,
    take_ip,
    take_name,
    take_text,
    take_time,
)
from ingest.sources.cloud.record import CloudRecord, person

_PRODUCT: Mapping[str, str] = {"name": "Bitbucket", "vendor_name": "Atlassian"}


def _read(fields: Fields, context: Context) -> Event:
    seconds, nanos = look(fields, "timestamp", "epochSecond"), look(fields, "timestamp", "nano")
    if type(seconds) is int:
        take(fields, "timestamp")
        fraction = nanos / 1e9 if type(nanos) is int and 0 <= nanos < 10**9 else 0
        stamp = stamp_epoch(seconds + fraction, context.record.received_at)
    else:
        stamp = take_time(fields, context, ("timestamp",))
    action = look_text(fields, "auditType", "action")
    if action is None:
        raise Unreadable("no 'auditType.action' in the audit event")
    take_text(fields, "auditType", "action")
    category = take_text(fields, "auditType", "category")
    name, uid = take_name(fields, "author", "name"), take_name(fields, "author", "id")
    by = person(name, uid, type=take_text(fields, "author", "type"))
    # Behind proxies there are several addresses, of which some are what a header said.
    ip = take_ip(fields, "source")
    record = CloudRecord(_PRODUCT, fields, stamp)
    about = kept(event_code=action, log_name=category)
    low = action.lower()
    common: dict[str, Any] = {
        "about": about,
        "message": f"{name or uid or 'unknown'}: {action}",
        "source": {"ip": ip} if ip else None,
        "by": by,
    }
    if (category or "").lower() == "authentication" and "login" in low:
        done = FAILURE if "fail" in low else SUCCESS
        return record.event(AUTHENTICATION, 1, status=done, is_remote=True, **common)
    things = [
        kept(uid=take_name(each, "id"), name=take_name(each, "name"), type=take_text(each, "type"))
        for each in listed(fields, "affectedObjects")
    ]
    status = FAILURE if "fail" in low else SUCCESS
    return record.event(
        API,
        activity_of(low),
        status=status,
        operation=action,
        service=category,
        resources=[each for each in things if each.keys() & {"uid", "name"}] or None,
        **common,
    )


@dataclass(frozen=True)
class BitbucketAudit(EnvelopedSource):
    """Audit events of Bitbucket Data Center and Server."""

    name: str = "bitbucket_audit"
    time_keys: ClassVar[tuple[str, ...]] = ("timestamp",)

    def is_own(self, fields: Fields) -> bool:
        return type(fields.get("auditType")) is dict

    def read(self, fields: Fields, context: Context) -> Event:
        return _read(fields, context)


SOURCES = (BitbucketAudit(),)
