"""Which alerts a caller wants, as conditions on the rows of `api.services.alert_index`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from alerts.domain.entity import NORMAL
from api.services.entities.entity_names import address_of
from api.services.reader import ReaderRow
from infra.config.time_args import time_or_none
from infra.errors import Usage

NOBODY = "none"
"""Value of a filter by assignee or verdict that wants alerts without one."""


@dataclass(frozen=True)
class AlertFilter:
    """Which alerts are wanted; an empty field wants all."""

    levels: tuple[str, ...] = ()
    rule_id: str | None = None
    rule: str | None = None
    entity: str | None = None
    host: str | None = None
    user: str | None = None
    ip: str | None = None
    attribution: str | None = None
    state: str | None = None
    lifecycle: str | None = None
    activity: str | None = None
    assignee: str | None = None
    verdict: str | None = None
    tag: str | None = None
    q: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    incident_id: str | None = None
    muted: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any], who: str) -> AlertFilter:
        """A filter from what a caller wrote (`level`, times as text); `who` is 'me'.

        Raises `Usage` for a time that is none, and for a word beside its former name.
        """
        now = datetime.now(UTC)
        fields = {name: value for name, value in given.items() if value is not None}
        _take_words(fields)
        # Resolved here, so that a stored bulk plan means who made it.
        if fields.get("assignee") == "me":
            fields["assignee"] = who
        for name in ("since", "until"):
            fields[name] = time_or_none(name, fields.get(name), now)
        if fields.get("ip"):
            # As the tables write it; a text that is none would quietly name nobody.
            fields["ip"] = NORMAL["ip"](fields["ip"])
        if fields.get("entity"):
            fields["entity"] = _as_written(fields["entity"])
        fields["levels"] = tuple(fields.pop("level", ()))
        wanted = cls(**fields)
        if wanted.since and wanted.until and wanted.until <= wanted.since:
            raise Usage(
                f"until ({wanted.until.isoformat()}) is not after since "
                f"({wanted.since.isoformat()})"
            )
        return wanted

    def sql(self) -> tuple[str, ReaderRow]:
        """Conditions on the newest revision, and their parameters."""
        wanted: list[tuple[str, str, Any]] = [
            ("rule_id = $rule_id", "rule_id", self.rule_id),
            ("(rule_id = $rule OR lower(rule_name) = lower($rule))", "rule", self.rule),
            (_ANYBODY, "entity", self.entity),
            ("a.status = $attribution", "attribution", self.attribution),
            ("activity = $activity", "activity", self.activity),
            ("event_time >= $since", "since", self.since),
            ("event_time < $until", "until", self.until),
            (
                "(incident_id = $incident_id OR a.alert_id = $incident_id)",
                "incident_id",
                self.incident_id,
            ),
            ("list_contains($levels, level)", "levels", list(self.levels) or None),
            ("state = $state", "state", self.state),
            ("lifecycle = $lifecycle", "lifecycle", self.lifecycle),
            (
                "(list_contains(tags, lower($tag)) OR"
                " list_contains(tags, 'attack.' || lower($tag)))",
                "tag",
                self.tag,
            ),
            ("contains(words, lower($q))", "q", self.q),
            *((_names(kind), kind, getattr(self, kind)) for kind in ("host", "user", "ip")),
        ]
        # Never empty, so that a WHERE can always be written before it.
        texts = ["TRUE" if self.muted else "suppressed_by IS NULL"]
        params: ReaderRow = {}
        for text, name, value in wanted:
            if value is not None:
                texts.append(text)
                params[name] = value
        for name in ("assignee", "verdict"):
            value = getattr(self, name)
            if value == NOBODY:
                texts.append(f"{name} IS NULL")
            elif value is not None:
                texts.append(f"lower({name}) = lower(${name})")
                params[name] = value
        return " AND ".join(texts), params


def _take_words(fields: dict[str, Any]) -> None:
    """Bring the words of callers, and those of earlier releases, to the columns they mean."""
    status = fields.pop("status", None)
    if status is not None:
        # One word for two columns in older calls; no value belongs to both.
        name = "alert_status" if status in ("open", "closed") else "attribution_status"
        _rename(fields, "status", name, status)
    for former, name in (("attribution", "attribution_status"), ("activity", "change_type")):
        if former in fields:
            _rename(fields, former, name, fields.pop(former))
    status = fields.pop("alert_status", None)
    if status is not None:
        fields["state" if status in ("open", "closed") else "lifecycle"] = status
    for name, column in (("attribution_status", "attribution"), ("change_type", "activity")):
        if name in fields:
            fields[column] = fields.pop(name)


def _rename(fields: dict[str, Any], former: str, name: str, value: Any) -> None:
    if name in fields:
        raise Usage(f"{former}: it is the former name of {name}, which is given too; leave it out")
    fields[name] = value


def _as_written(entity: str) -> str:
    """A hardware or network address as the tables write it, any other name as it is."""
    address = address_of(entity)
    return entity if address is None else address[1]


_ANYBODY = (
    "(lower(entity_value) = lower($entity) OR src_ip = $entity OR list_has_any(names, ["
    + ", ".join(f"'{kind}|' || lower($entity)" for kind in ("device", "host", "user", "ip"))
    + "]))"
)
"""Whether the alert is about this device, host, user or address, or names it."""


def _names(kind: str) -> str:
    """Whether the alert names this host, user or address, whatever it is about."""
    named = f"list_contains(names, '{kind}|' || lower(${kind}))"
    own = f"(entity_type = '{kind}' AND lower(entity_value) = lower(${kind}))"
    return f"({own} OR {named}" + (f" OR src_ip = ${kind})" if kind == "ip" else ")")
