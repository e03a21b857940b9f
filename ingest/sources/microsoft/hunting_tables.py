"""Tables of Defender XDR's advanced hunting that identities, mail and cloud apps fill.

https://learn.microsoft.com/en-us/defender-xdr/advanced-hunting-schema-tables : IdentityLogonEvents,
IdentityDirectoryEvents, IdentityQueryEvents, EmailEvents, EmailAttachmentInfo, EmailUrlInfo,
EmailPostDeliveryEvents, UrlClickEvents and CloudAppEvents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import (
    ACCOUNT,
    API,
    AUTHENTICATION,
    DENIED,
    EMAIL,
    FAILURE,
    FILE_HOSTING,
    GROUP,
    HTTP,
    INFORMATIONAL,
    MEDIUM,
    OTHER,
    SUCCESS,
    UNKNOWN,
    kept,
)
from ingest.parsing.source import Event, Unreadable
from ingest.parsing.strict_json import decode_object
from ingest.sources.cloud.common import (
    PORTS,
    Fields,
    activity_of,
    look,
    look_text,
    take_ip,
    take_name,
    take_number,
    take_text,
)
from ingest.sources.cloud.m365_audit import SIGN_IN, file_activity
from ingest.sources.cloud.record import CloudRecord, person, status_of
from ingest.sources.shared.daemon_source import mailboxes
from ingest.sources.shared.firewall import endpoint, file_hash, firewall_disposition
from ingest.sources.shared.http_exchange import url

XDR_PRODUCT: Mapping[str, str] = {"name": "Defender XDR", "vendor_name": "Microsoft"}
_LOGON, _LOGOFF = 1, 2
_BLOCKED = 2
_SHA256 = 3
"""OCSF's disposition of what was not let through, and its number of the kind of hash."""
_SEND, _RECEIVE, _SCAN, _TRACE = 1, 2, 3, 4
# The tables have words where Windows' event 4624 has numbers.
_LOGON_TYPES: Mapping[str, int] = MappingProxyType(
    {
        "Interactive": 2,
        "Network": 3,
        "Batch": 4,
        "Service": 5,
        "Unlock": 7,
        "NetworkCleartext": 8,
        "NewCredentials": 9,
        "RemoteInteractive": 10,
        "Remote interactive (RDP) logons": 10,
        "CachedInteractive": 11,
    }
)
_DIRECTIONS = {"Inbound": 1, "Outbound": 2, "Intra-org": 3}
# By the words of an action such as `Account Password changed`, the surest first.
_OF_ACCOUNT = (
    ("password reset", 4),
    ("password changed", 3),
    ("unlocked", 12),
    ("locked", 9),
    ("disabled", 5),
    ("enabled", 2),
    ("created", 1),
    ("deleted", 6),
)
_APP_SIGN_IN: Mapping[str, tuple[int, int]] = {
    **SIGN_IN,
    "Log on": (_LOGON, SUCCESS),
    "Failed log on": (_LOGON, FAILURE),
    "Log off": (_LOGOFF, SUCCESS),
}


def logon_type(word: object) -> int | None:
    """Windows' number of a logon type by its word; 99 for a word that stands for no number."""
    return _LOGON_TYPES.get(str(word), 99 if word else None)


def _about(record: CloudRecord, table: str, action: str, *uids: str) -> dict[str, str | None]:
    uid = next((value for name in uids if (value := look_text(record.fields, name))), None)
    return kept(
        event_code=action or None,
        log_name=table,
        uid=take_name(record.fields, "ReportId"),
        correlation_uid=uid,
    )


def _account(fields: Fields, prefix: str = "Account") -> Fields | None:
    """The account that `prefix` names, by whatever of name, address and ids there is."""
    upn = take_text(fields, f"{prefix}Upn")
    name = take_text(fields, f"{prefix}Name")
    full = take_text(fields, f"{prefix}DisplayName")
    uid = take_text(fields, f"{prefix}ObjectId") or take_text(fields, f"{prefix}Sid")
    made = person(name or upn, uid, full, domain=take_text(fields, f"{prefix}Domain"))
    # The address as well, where the name is another.
    mail = (person(upn) or {}).get("email_addr")
    return made | {"email_addr": mail} if made and mail else made


def _asking(fields: Fields) -> Fields | None:
    return endpoint(
        ip=take_ip(fields, "IPAddress"),
        port=take_number(fields, "Port", most=PORTS),
        hostname=take_text(fields, "DeviceName"),
    )


def _asked(fields: Fields) -> Fields | None:
    """The domain controller or machine that was asked."""
    name = take_text(fields, "DestinationDeviceName")
    return endpoint(
        ip=take_ip(fields, "DestinationIPAddress"),
        port=take_number(fields, "DestinationPort", most=PORTS),
        hostname=name or take_text(fields, "TargetDeviceName"),
    )


def _identity_logon(record: CloudRecord, table: str, action: str) -> Event:
    fields = record.fields
    source = _asking(fields)
    user = _account(fields)
    failed = action == "LogonFailed"
    return record.event(
        AUTHENTICATION,
        _LOGON,
        about=_about(record, table, action),
        message=f"{(user or {}).get('name') or 'unknown'}: {action or table}",
        status=FAILURE if failed else SUCCESS if action == "LogonSuccess" else UNKNOWN,
        status_detail=take_text(fields, "FailureReason"),
        source=source,
        target=_asked(fields),
        user=user,
        logon_type_id=logon_type(look(fields, "LogonType")),
        auth_protocol=take_text(fields, "Protocol"),
        service=take_text(fields, "Application"),
        is_remote=bool(source) or None,
    )


def _group_of(fields: Fields) -> Fields:
    """The group that somebody came to or left, from `AdditionalFields`."""
    more = look(fields, "AdditionalFields")
    if type(more) is str and more.lstrip()[:1] == "{":
        try:
            more = decode_object(more.encode("utf-8", "surrogatepass").strip())
        except Unreadable:
            more = None
    name = None
    if type(more) is dict:
        name = more.get("TO.GROUP") or more.get("FROM.GROUP")
    return {"name": name if type(name) is str and name else "unknown"}


def _identity_directory(record: CloudRecord, table: str, action: str) -> Event:
    """A change in the directory, or what a domain controller saw somebody do."""
    fields = record.fields
    by = _account(fields)
    low = action.lower()
    columns: dict[str, Any] = {
        "about": _about(record, table, action),
        "message": f"{(by or {}).get('name') or 'unknown'}: {action or table}",
        "status": SUCCESS,
        "source": _asking(fields),
        "by": by,
        "operation": action or table,
    }
    if low.startswith("group membership"):
        group = _group_of(fields)
        more = look(fields, "AdditionalFields")
        left = "FROM.GROUP" in more if type(more) in (str, dict) else False
        return record.event(
            GROUP, 4 if left else 3, user=_account(fields, "TargetAccount"), group=group, **columns
        )
    if low.startswith(("account", "user account")):
        doing = next((number for words, number in _OF_ACCOUNT if words in low), OTHER)
        user = _account(fields, "TargetAccount") or by or {"name": "unknown"}
        return record.event(ACCOUNT, doing, user=user, **columns)
    return record.event(
        API,
        activity_of(action),
        target=_asked(fields),
        service=take_text(fields, "Application"),
        **columns,
    )


def _identity_query(record: CloudRecord, table: str, action: str) -> Event:
    fields = record.fields
    by = _account(fields)
    target = take_text(fields, "QueryTarget")
    return record.event(
        API,
        2,
        about=_about(record, table, action),
        message=f"{(by or {}).get('name') or 'unknown'}: {action or table} {target or ''}".strip(),
        status=SUCCESS,
        source=_asking(fields),
        target=_asked(fields),
        by=by,
        operation=action or table,
        service=take_text(fields, "Application"),
        resources=[{"name": target, "uid": target}] if target else None,
    )


def _mail(
    record: CloudRecord, table: str, action: str, activity: int, more: Fields, **columns: Any
) -> Event:
    """A mail by its sender, its recipient and its id; `more` is what OCSF has besides of it."""
    fields = record.fields
    sender = take_text(fields, "SenderFromAddress") or take_text(fields, "SenderMailFromAddress")
    to = take_text(fields, "RecipientEmailAddress")
    uid, message_uid = (take_text(fields, f"{of}MessageId") for of in ("Network", "Internet"))
    subject = take_text(fields, "Subject")
    email, odd = mailboxes(
        kept(
            **{"from": sender},
            to=[to] if to else None,
            subject=subject,
            message_uid=message_uid,
            uid=uid,
            size=take_number(fields, "EmailSize", most=2**63 - 1),
        )
    )
    direction = _DIRECTIONS.get(str(look(fields, "EmailDirection")), 0)
    return record.event(
        EMAIL,
        activity,
        about=_about(record, table, action) | kept(correlation_uid=uid),
        message=f"{sender or 'unknown'} to {to or 'unknown'}: {action or subject or table}",
        # A threat that was seen in it, whatever became of the mail.
        severity=MEDIUM if look_text(fields, "ThreatTypes") else INFORMATIONAL,
        source=endpoint(ip=take_ip(fields, "SenderIPv4") or take_ip(fields, "SenderIPv6"))
        or {"name": "unknown"},
        email=email or {"uid": "unknown"},
        more={"direction_id": direction} | ({"email": odd | more} if odd or more else {}),
        **columns,
    )


def _email(record: CloudRecord, table: str, action: str) -> Event:
    fields = record.fields
    delivered = take_text(fields, "DeliveryAction")
    activity = _RECEIVE if look(fields, "EmailDirection") == "Inbound" else _SEND
    refused = delivered == "Blocked"
    decided = {"action_id": DENIED, "disposition_id": _BLOCKED} if refused else {}
    return _mail(
        record,
        table,
        delivered or action,
        activity,
        {},
        status=FAILURE if refused else SUCCESS,
        status_detail=take_text(fields, "DeliveryLocation"),
        **decided,
    )


def _attachment(record: CloudRecord, table: str, action: str) -> Event:
    fields = record.fields
    hashes = [
        element | {"algorithm_id": _SHA256}
        for element in file_hash(look(fields, "SHA256")) or ()
        if element["algorithm"] == "SHA-256"
    ]
    if hashes:
        take_text(fields, "SHA256")
    file = kept(
        name=take_text(fields, "FileName") or "unknown",
        type_id=1,
        size=take_number(fields, "FileSize", most=2**63 - 1),
        hashes=hashes or None,
    )
    return _mail(record, table, action, _SCAN, {"files": [file]}, status=SUCCESS)


def _link(record: CloudRecord, table: str, action: str) -> Event:
    written = take_text(record.fields, "Url")
    more = {"urls": [{"url_string": written}]} if written else {}
    return _mail(record, table, action, _SCAN, more, status=SUCCESS)


def _after_delivery(record: CloudRecord, table: str, action: str) -> Event:
    done = take_text(record.fields, "ActionResult")
    return _mail(
        record,
        table,
        action,
        _TRACE,
        {},
        status=status_of(done) if done else SUCCESS,
        status_detail=done,
    )


def _click(record: CloudRecord, table: str, action: str) -> Event:
    """A link that somebody opened through Safe Links."""
    fields = record.fields
    written = take_text(fields, "Url")
    through = look(fields, "IsClickedThrough") in (True, 1, "true", "True", "1")
    blocked = "Blocked" in action and not through
    decided = firewall_disposition(
        False if blocked else True if through or action == "ClickAllowed" else None
    )
    by = _account(fields)
    return record.event(
        HTTP,
        UNKNOWN,
        about=_about(record, table, action, "NetworkMessageId"),
        message=f"{(by or {}).get('name') or 'unknown'}: {action or table} {written or ''}".strip(),
        severity=MEDIUM if look_text(fields, "ThreatTypes") else INFORMATIONAL,
        source=endpoint(ip=take_ip(fields, "IPAddress")) or {"name": "unknown"},
        by=by,
        request=kept(url=url(written, None, None, None, None) if written else None),
        operation=action or table,
        **({"status": decided.pop("status_id")} if decided else {}),
        **decided,
    )


def _raw_event(fields: Fields) -> Fields:
    """The app's own record, which may be packed as text; it stays where it is."""
    raw = look(fields, "RawEventData")
    if type(raw) is str and raw.lstrip()[:1] == "{":
        try:
            return decode_object(raw.encode("utf-8", "surrogatepass").strip())
        except Unreadable:
            return {}
    return raw if type(raw) is dict else {}


def _cloud_app(record: CloudRecord, table: str, action: str) -> Event:
    fields = record.fields
    raw = _raw_event(fields)
    uid = take_text(fields, "AccountObjectId") or take_text(fields, "AccountId")
    full = take_text(fields, "AccountDisplayName")
    by = person(look_text(raw, "UserId") or full, uid, full)
    outcome = look_text(raw, "ResultStatus")
    status = status_of(outcome) if outcome else SUCCESS
    columns: dict[str, Any] = {
        "about": _about(record, table, action),
        "message": f"{(by or {}).get('name') or 'unknown'}: {action or table}",
        "source": endpoint(
            ip=take_ip(fields, "IPAddress"), country=take_text(fields, "CountryCode")
        ),
        "by": by,
        "agent": take_text(fields, "UserAgent"),
    }
    if action in _APP_SIGN_IN:
        activity, usual_status = _APP_SIGN_IN[action]
        failed = FAILURE in (usual_status, status)
        return record.event(
            AUTHENTICATION,
            activity,
            status=FAILURE if failed else SUCCESS,
            service=take_text(fields, "Application"),
            is_remote=True,
            **columns,
        )
    doing = file_activity(action)
    if doing is not None:
        columns["source"] = columns["source"] or {"name": "unknown"}
        file = kept(
            name=take_text(fields, "ObjectName") or "unknown",
            path=take_text(fields, "ObjectId") or look_text(raw, "ObjectId"),
            type_id=1,
        )
        return record.event(
            FILE_HOSTING, doing, status=status, operation=action, file=file, **columns
        )
    thing = kept(
        uid=take_text(fields, "ObjectId"),
        name=take_text(fields, "ObjectName"),
        type=take_text(fields, "ObjectType"),
    )
    return record.event(
        API,
        activity_of(action),
        status=status,
        operation=action or table,
        service=take_text(fields, "Application"),
        resources=[thing] if "uid" in thing or "name" in thing else None,
        **columns,
    )


HUNTING_READERS: Mapping[str, Callable[[CloudRecord, str, str], Event]] = MappingProxyType(
    {
        "identitylogonevents": _identity_logon,
        "identitydirectoryevents": _identity_directory,
        "identityqueryevents": _identity_query,
        "emailevents": _email,
        "emailattachmentinfo": _attachment,
        "emailurlinfo": _link,
        "emailpostdeliveryevents": _after_delivery,
        "urlclickevents": _click,
        "cloudappevents": _cloud_app,
    }
)
"""How a row is read, by its table in lower case: of the record, the table and the action."""
_BY_COLUMN = (
    ("IsClickedThrough", "UrlClickEvents"),
    ("DeliveryAction", "EmailEvents"),
    ("UrlLocation", "EmailUrlInfo"),
    ("ActionTrigger", "EmailPostDeliveryEvents"),
    ("RawEventData", "CloudAppEvents"),
    ("ActivityObjects", "CloudAppEvents"),
    ("QueryTarget", "IdentityQueryEvents"),
)


def hunting_table_of(fields: Fields, action: str) -> str | None:
    """The table of a row that does not name it, by columns that no other has; None if unsure."""
    for name, table in _BY_COLUMN:
        if name in fields:
            return table
    if "NetworkMessageId" in fields and ("FileName" in fields or "SHA256" in fields):
        return "EmailAttachmentInfo"
    if "TargetDeviceName" in fields or "DestinationDeviceName" in fields:
        return "IdentityLogonEvents" if action.startswith("Logon") else "IdentityDirectoryEvents"
    return None
