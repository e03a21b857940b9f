"""GitLab's audit events: `audit_json.log`, streams of audit events, and the API's.

https://docs.gitlab.com/administration/logs/#audit_jsonlog and
https://docs.gitlab.com/user/compliance/audit_event_schema/ . What an event did stands beside
it in the log (`change`, `add`, `remove`, `with`), and in `details` everywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ingest.parsing.ocsf import API, AUTHENTICATION, FAILURE, OTHER, SUCCESS, kept
from ingest.parsing.source import Context, Event, Unreadable
from ingest.sources.cloud.common import (
    EnvelopedSource,
    Fields,
    activity_of,
    inner,
    look,
    severity_of,
    take_ip,
    take_name,
    take_text,
    take_time,
)
from ingest.sources.cloud.record import CloudRecord, person

_PRODUCT: Mapping[str, str] = {"name": "GitLab", "vendor_name": "GitLab"}
_DID = (("add", 1), ("remove", 4), ("change", 3))
"""Keys that say what was done, each with what it is to API Activity."""


def _take(fields: Fields, name: str) -> str | None:
    """The text `name`, of the event or of its details."""
    value = take_name(fields, name) or take_name(fields, "details", name)
    # With details both places may tell the same.
    if value is not None and look(fields, "details", name) == value:
        take_name(fields, "details", name)
    return value


def _login(words: str | None, details: Fields) -> int | None:
    """The outcome of a login; None for what is none."""
    low = (words or "").lower()
    if "failed_login" in details or low.startswith(("login_failed", "failed to login")):
        return FAILURE
    signed = low.startswith(("authenticated_with", "signed in with", "user_signed_in"))
    return SUCCESS if "with" in details or signed else None


def _read(fields: Fields, context: Context) -> Event:
    stamp = take_time(fields, context, ("time",), ("created_at",))
    details = inner(fields, "details") or fields
    kind = take_text(fields, "event_type") or take_text(fields, "event_name")
    words = _take(fields, "custom_message") or _take(fields, "message")
    name, uid = _take(fields, "author_name"), take_name(fields, "author_id")
    if not (name or uid or kind):
        raise Unreadable("neither an author nor an event_type in the audit event")
    status = _login(kind or words, details)
    ip = take_ip(fields, "ip_address") or take_ip(fields, "details", "ip_address")
    of, thing = _take(fields, "target_type"), _take(fields, "target_details")
    key = _take(fields, "target_id")
    entity, path = take_text(fields, "entity_type"), _take(fields, "entity_path")
    changed = [(word, activity) for word, activity in _DID if type(details.get(word)) is str]
    did = [f"{word} {details[word]}" for word, _ in changed]
    operation = kind or (did[0].replace(" ", "_") if did else words) or "audit_event"
    record = CloudRecord(_PRODUCT, fields, stamp)
    by = person(name, uid, type=_take(fields, "author_class"))
    about = kept(
        uid=take_name(fields, "id"),
        # It may be a sentence of somebody's own, which is no code.
        event_code=operation if len(operation) < 200 else None,
        log_name=entity,
        correlation_uid=take_text(fields, "correlation_id"),
    )
    level = look(fields, "severity")
    severity = severity_of(level if type(level) is str else None)
    sentence = f"{name or uid or 'unknown'}: {words or (did[0] if did else operation)}"
    if status is not None:
        return record.event(
            AUTHENTICATION,
            1,
            about=about,
            message=sentence,
            status=status,
            severity=severity,
            source={"ip": ip} if ip else None,
            by=by,
            auth_protocol=_take(fields, "with") or _take(fields, "failed_login"),
            is_remote=True,
        )
    resource = kept(uid=key or thing, name=thing, type=of)
    owner = kept(uid=path, name=path, type=entity) if path and path != thing else {}
    activity = activity_of(kind) if kind else OTHER
    if activity == OTHER and changed:
        activity = changed[0][1]
    return record.event(
        API,
        activity,
        about=about,
        message=sentence,
        status=SUCCESS,
        severity=severity,
        source={"ip": ip} if ip else None,
        by=by,
        operation=operation,
        service=entity,
        resources=[each for each in (resource, owner) if each.keys() & {"uid", "name"}] or None,
    )


@dataclass(frozen=True)
class GitLabAudit(EnvelopedSource):
    """Audit events of GitLab."""

    name: str = "gitlab_audit"
    time_keys: ClassVar[tuple[str, ...]] = ("time", "created_at")

    def is_own(self, fields: Fields) -> bool:
        return "author_id" in fields or ("entity_type" in fields and "entity_id" in fields)

    def read(self, fields: Fields, context: Context) -> Event:
        return _read(fields, context)


SOURCES = (GitLabAudit(),)
