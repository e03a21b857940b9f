"""Microsoft 365's unified audit log: Exchange, SharePoint, Teams, Entra ID and others.

https://learn.microsoft.com/en-us/office/office-365-management-api/office-365-management-activity-api-schema
Records as the Management Activity API gives them, and as `Search-UnifiedAuditLog` and the
portal's export do, with the record as text in `AuditData`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ingest.parsing.ocsf import (
    API,
    AUTHENTICATION,
    FAILURE,
    FILE_HOSTING,
    FINDING,
    MEDIUM,
    SUCCESS,
    kept,
)
from ingest.parsing.source import Context, Event, Unreadable
from ingest.parsing.strict_json import decode_object
from ingest.sources.cloud.common import (
    EnvelopedSource,
    Fields,
    activity_of,
    listed,
    look,
    take,
    take_name,
    take_text,
    take_time,
)
from ingest.sources.cloud.record import CloudRecord, person, status_of, take_end

_PRODUCT: Mapping[str, str] = {"name": "Microsoft 365", "vendor_name": "Microsoft"}
_LOGON, _LOGOFF = 1, 2
SIGN_IN: Mapping[str, tuple[int, int]] = {
    "UserLoggedIn": (_LOGON, SUCCESS),
    "UserLoginFailed": (_LOGON, FAILURE),
    "MailboxLogin": (_LOGON, SUCCESS),
    "TeamsSessionStarted": (_LOGON, SUCCESS),
    "SignInEvent": (_LOGON, SUCCESS),
    "ForeignRealmIndexLogonInitialAuthUsingADFSFederatedToken": (_LOGON, SUCCESS),
    "PasswordLogonInitialAuthUsingPassword": (_LOGON, SUCCESS),
    "UserLoggedOut": (_LOGOFF, SUCCESS),
}
_FILES: Mapping[str, int] = {
    "Uploaded": 1,
    "Downloaded": 2,
    "Modified": 3,
    "Deleted": 4,
    "Renamed": 5,
    "Copied": 6,
    "Moved": 7,
    "Restored": 8,
    "Previewed": 9,
    "Accessed": 14,
    "Viewed": 14,
    "CheckedIn": 3,
    "Recycled": 4,
}
"""What follows `File`, `Folder` or `Page` in an operation, as an activity of File Hosting."""
# What follows says where, as in `FileDeletedFirstStageRecycleBin`.
_OF_FILE = re.compile(r"(?:File|Folder|Page|Document)(?P<what>[A-Z][a-z]+(?:In)?)\w{0,60}")
# 1 is reserved (AuditLogRecord of the schema).
_USER_TYPES = {
    "0": "Regular",
    "2": "Admin",
    "3": "DcAdmin",
    "4": "System",
    "5": "Application",
    "6": "ServicePrincipal",
}


def file_activity(operation: str) -> int | None:
    """The activity of File Hosting that an operation such as `FileDownloaded` is."""
    file = _OF_FILE.fullmatch(operation)
    return _FILES.get(file["what"]) if file else None


def _resources(fields: Fields) -> list[Fields]:
    resources: list[Fields] = []
    for name in ("ObjectId", "SiteUrl", "MailboxOwnerUPN"):
        value = take_text(fields, name)
        if value and value not in (element["uid"] for element in resources):
            resources.append({"uid": value, "name": value.rpartition("/")[2] or value})
    return resources


def _property(fields: Fields, name: str) -> str | None:
    """A value of `ExtendedProperties`, a list of names and values."""
    for element in listed(fields, "ExtendedProperties"):
        if look(element, "Name") == name and type(look(element, "Value")) is str:
            return str(look(element, "Value"))
    return None


def _read(fields: Fields, context: Context) -> Event:
    operation = take_text(fields, "Operation")
    if operation is None:
        raise Unreadable("no 'Operation' in the record")
    # In UTC by the schema, though without a zone.
    stamp = take_time(fields, context, ("CreationTime",), ("CreationDate",))
    record = CloudRecord(_PRODUCT, fields, stamp)
    name, key = take_text(fields, "UserId"), take_text(fields, "UserKey")
    kind = take_name(fields, "UserType")
    by = person(name, key if key != name else None, type=_USER_TYPES.get(kind or "", kind))
    written = take_text(fields, "ResultStatus")
    status = status_of(written) if written else SUCCESS
    workload = take_text(fields, "Workload")
    source = take_end(
        fields, ("ClientIP",), ("ClientIPAddress",), ("ActorIpAddress",), ("ActorClientIPAddress",)
    )
    agent = take_text(fields, "UserAgent") or _property(fields, "UserAgent")
    agent = agent or take_text(fields, "ClientInfoString")
    tenant = take_text(fields, "OrganizationId")
    columns: dict[str, Any] = {
        "about": kept(
            event_code=operation,
            uid=take_text(fields, "Id"),
            log_name=workload,
            correlation_uid=take_text(fields, "InterSystemsId"),
        ),
        "message": f"{name or 'unknown'}: {operation}",
        "source": source,
        "by": by,
        "agent": agent,
        "status_code": written,
        "cloud": {"provider": "Microsoft", "account": {"uid": tenant} if tenant else None},
    }
    if operation in SIGN_IN:
        activity, outcome = SIGN_IN[operation]
        # A login with an error number has failed, whatever the operation is called.
        # It has no column, so it is looked at and left.
        wrong = str(fields.get("ErrorNumber") or 0).strip()
        failed = outcome == FAILURE or status == FAILURE or wrong not in ("", "0")
        return record.event(
            AUTHENTICATION,
            activity,
            status=FAILURE if failed else SUCCESS,
            status_detail=take_text(fields, "LogonError"),
            is_remote=True,
            service=take_text(fields, "ApplicationDisplayName") or workload,
            **columns,
        )
    doing = file_activity(operation)
    if doing is not None:
        return _file_event(record, doing, status, columns)
    if operation in ("AlertTriggered", "AlertEntityGenerated") or "AlertId" in fields:
        return _alert(record, columns)
    return record.event(
        API,
        activity_of(operation),
        status=status,
        operation=operation,
        service=workload,
        resources=_resources(fields),
        **columns,
    )


def _file_event(record: CloudRecord, activity: int, status: int, columns: dict[str, Any]) -> Event:
    fields = record.fields
    name = take_text(fields, "SourceFileName") or "unknown"
    path = take_text(fields, "ObjectId")
    columns["source"] = columns["source"] or {"name": "unknown"}
    return record.event(
        FILE_HOSTING,
        activity,
        status=status,
        operation=columns["about"]["event_code"],
        file={"name": name, "path": path, "type_id": 1},
        **columns,
    )


def _alert(record: CloudRecord, columns: dict[str, Any]) -> Event:
    fields = record.fields
    title = take_text(fields, "Name") or columns["message"]
    uid = take_text(fields, "AlertId") or columns["about"]["uid"] or title
    grade = take_text(fields, "Severity")
    columns.pop("by")
    return record.event(
        FINDING,
        1,
        severity={"Low": 2, "Medium": 3, "High": 4, "Informational": 1}.get(grade or "", MEDIUM),
        finding_info={"uid": uid, "title": title, "created_time": record.stamp.time},
        **columns,
    )


@dataclass(frozen=True)
class M365Audit(EnvelopedSource):
    """Microsoft 365's unified audit log."""

    name: str = "m365_audit"
    time_keys: ClassVar[tuple[str, ...]] = ("CreationTime", "CreationDate")
    redelivery: ClassVar[tuple[str, ...]] = ("metadata.uid", "time")

    def is_own(self, fields: Fields) -> bool:
        return look(fields, "Operation") is not None or look(fields, "AuditData") is not None

    def read(self, fields: Fields, context: Context) -> Event:
        packed = look(fields, "AuditData")
        if type(packed) is str and packed.lstrip()[:1] == "{":
            take(fields, "AuditData")
            # A text of JSON may hold half a surrogate; whether the record inside may is for its own
            # decoder to say.
            inside = decode_object(packed.encode("utf-8", "surrogatepass").strip())
            # What the search adds repeats the record; what it says besides is kept.
            rest = {key: value for key, value in fields.items() if value not in inside.values()}
            return _read(inside | ({"search": rest} if rest else {}), context)
        if type(packed) is dict:
            take(fields, "AuditData")
            return _read(packed | ({"search": fields} if fields else {}), context)
        return _read(fields, context)


SOURCES = (M365Audit(),)
