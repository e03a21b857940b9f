"""Suppressions that are active, known by what they silence.

An id cannot begin again once it ended, so it stands in no file: a changed suppression begins under
a new one, and the one before ends.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from alerts.delivery.action_request import request_action, waiting_requests
from alerts.delivery.suppress_request import SuppressionWish, require_end
from alerts.lifecycle.suppression import ANY, SUPPRESS, UNSUPPRESS
from alerts.tables import ALERT_ACTION
from headgate.as_code.kinds.kind import ConfigKind, FolderReading, Texts, yaml_text
from headgate.as_code.kinds.rules_off import names_of_rules
from headgate.as_code.state import ConfigChange, Objects, ObjectValues
from infra.config.settings import Settings
from infra.delta.duckdb_views import definitions, open_engine, refresh
from infra.errors import Usage
from infra.process.os_user import acting_user
from infra.storage.paths import is_table

_KIND = "suppression"
_FILE = "suppressions.yml"
_KEYS = ("rule", "entity", "fields", "owner", "reason", "expires_at")
_ASKED = """
SELECT suppression_id, rule, entity, fields, owner, reason, expires_at
FROM gold.suppression WHERE ended_at IS NULL
"""
Row = Mapping[str, Any]


def active_suppressions(settings: Settings) -> dict[str, ObjectValues]:
    """What is silenced now, by id; a request that waits for the driver counts as done."""
    # The files before the table: what a driver folds meanwhile is then seen twice, not missed.
    waiting = waiting_requests(settings)
    rows = list(_of_table(settings))
    rows += [
        row | {"suppression_id": row["alert_id"], "rule": row["rule_id"],
               "owner": row["value"], "reason": row["comment"]}
        for row in waiting if row["action"] == SUPPRESS
    ]  # fmt: skip
    ended = {row["alert_id"] for row in waiting if row["action"] == UNSUPPRESS}
    now = datetime.now(UTC)
    return {
        row["suppression_id"]: values
        for row in rows
        if row["suppression_id"] not in ended
        and datetime.fromisoformat((values := _values(row))["expires_at"]) > now
    }


def _of_table(settings: Settings) -> Iterator[dict[str, Any]]:
    # Before the first request was folded there is no table, and nothing in it is silenced.
    if not is_table(settings.lake_root / ALERT_ACTION.path):
        return
    wanted = [
        known
        for known in definitions(settings.lake_root)
        if known.name in (ALERT_ACTION.name, "gold.suppression")
    ]
    engine = open_engine(memory="512MB", threads=1)
    try:
        refresh(engine, wanted)
        answer = engine.execute(_ASKED)
        names = [column[0] for column in answer.description or ()]
        for row in answer.fetchall():
            yield dict(zip(names, row, strict=True))
    finally:
        engine.close()


def _values(row: Row) -> ObjectValues:
    given = row["expires_at"]
    ends = given if isinstance(given, datetime) else datetime.fromisoformat(given)
    return {
        "rule": row["rule"] or ANY,
        "entity": row.get("entity") or ANY,
        "fields": dict(row.get("fields") or {}),
        "owner": row.get("owner") or "",
        "reason": row.get("reason") or "",
        "expires_at": ends.astimezone(UTC).isoformat(),
    }


def _name(values: ObjectValues) -> str:
    """What it silences, in one spelling."""
    asked = {"rule": values["rule"], "entity": values["entity"]}
    parts = [f"{name}={pattern}" for name, pattern in asked.items() if pattern != ANY]
    return " ".join([*parts, *(f"{name}={p}" for name, p in sorted(values["fields"].items()))])


def _in_force(settings: Settings) -> Objects:
    objects: Objects = {}
    # Of several that silence the same, the one that lasts longest decides.
    for values in sorted(active_suppressions(settings).values(), key=_ends):
        objects[_name(values)] = values
    return objects


def _ends(values: ObjectValues) -> tuple[datetime, str]:
    return datetime.fromisoformat(values["expires_at"]), repr(sorted(values.items()))


def _to_texts(settings: Settings, objects: Objects) -> Texts:
    names = names_of_rules(settings) if objects else {}
    listed = [
        {key: value for key, value in values.items() if value not in (ANY, {}, "")}
        | ({} if values["rule"] == ANY else {"rule": names.get(values["rule"], values["rule"])})
        for _, values in sorted(objects.items())
    ]
    return {_FILE: yaml_text(listed)}


def _from_texts(reading: FolderReading) -> Objects:
    content = reading.document(_KIND, _FILE) or []
    if not isinstance(content, list):
        reading.refuse(_KIND, _FILE, "not a list of suppressions")
        return {}
    objects: Objects = {}
    for number, entry in enumerate(content, 1):
        where = f"{_FILE}, number {number}"
        if not reading.only_keys(_KIND, where, entry, _KEYS):
            continue
        try:
            values = _taken(reading, entry)
            name = _name(values)
            if name in objects:
                raise Usage("another one silences the same")
            # One that is over is no longer in force, in the file as in the lake.
            if datetime.fromisoformat(values["expires_at"]) > datetime.now(UTC):
                objects[name] = values
        except Usage as error:
            reading.refuse(_KIND, where, str(error))
    return objects


def _taken(reading: FolderReading, entry: dict[str, Any]) -> ObjectValues:
    texts = {key: entry.get(key, "") for key in ("rule", "entity", "owner", "reason")}
    fields = entry.get("fields", {})
    if not isinstance(fields, dict) or not all(
        isinstance(text, str) for text in (*texts.values(), *fields, *fields.values())
    ):
        raise Usage("its values are texts, and fields a mapping of texts; quote numbers")
    if not texts["reason"].strip():
        raise Usage("reason: say why")
    rule = texts["rule"].strip()
    rule_id = reading.rule_ids.get(rule)
    known = {values["rule"] for values in reading.in_force.get(_KIND, {}).values()}
    if rule and rule_id is None and not set("*?") & set(rule) and rule not in known:
        raise Usage(f"no rule '{rule}'; 'headgate rules list' shows them")
    values = _values(
        {**texts, "rule": rule_id or rule, "fields": fields, "expires_at": _instant_of(entry),
         "owner": texts["owner"].strip() or acting_user()}
    )  # fmt: skip
    SuppressionWish(values["rule"], values["entity"], values["fields"]).require_narrow()
    if values != reading.in_force.get(_KIND, {}).get(_name(values)):
        end = datetime.fromisoformat(values["expires_at"])
        now = datetime.now(UTC)
        if end > now:
            require_end(end, now)
    return values


def _instant_of(entry: dict[str, Any]) -> datetime:
    given = entry.get("expires_at")
    try:
        # YAML makes a time of what looks like one, and leaves a quoted one a text.
        end = given if isinstance(given, datetime) else datetime.fromisoformat(str(given))
    except ValueError:
        raise Usage(f"expires_at '{given}': write 2026-12-01T00:00:00Z") from None
    if end.tzinfo is None:
        raise Usage(f"expires_at {given}: name the zone, such as 2026-12-01T00:00:00Z")
    return end


def _put(settings: Settings, change: ConfigChange, staged: str) -> None:
    active = {
        suppression_id: values
        for suppression_id, values in active_suppressions(settings).items()
        if _name(values) == change.name
    }
    new = change.after
    # The new one first: while it changes, nothing that is to be silent goes out.
    if new is not None and new not in active.values():
        request_action(
            settings,
            SUPPRESS,
            # The same id however often this is tried; the staging folder is one apply's own.
            uuid.uuid5(uuid.NAMESPACE_URL, f"{staged} {change.name}").hex,
            new["rule"],
            value=new["owner"],
            comment=new["reason"],
            entity=None if new["entity"] == ANY else new["entity"],
            fields=new["fields"],
            expires_at=datetime.fromisoformat(new["expires_at"]),
        )
    for suppression_id, values in active.items():
        if values != new:
            request_action(
                settings, UNSUPPRESS, suppression_id, values["rule"], comment="headgate apply"
            )


SUPPRESSIONS = ConfigKind(_KIND, _FILE.__eq__, _in_force, _to_texts, _from_texts, _put)
