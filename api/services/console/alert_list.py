"""Alerts as a list to work through: filtered, counted by facet, grouped, page by page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from alerts.domain.levels import WORST_FIRST
from api.services.alert_index import INDEX, KINDS
from api.services.reader import Reader, ReaderRow, cursor_of, parse_instant, reader_cursor

NEEDS = (INDEX,)
PAGE_ROWS = 50
GROUPS = 30
SHOWN_OF_GROUP = 5
CSV_PAGE = 5000

GroupBy = Literal["", "entity", "rule", "incident"]

# Without the columns that only the API's filters ask: they are most of the bytes.
_CURRENT = (
    "WITH listed AS NOT MATERIALIZED (SELECT rowid AS place_kept,"
    " * EXCLUDE (words, names, tags, delay, raised_in, entity_key)"
    f" RENAME (status AS attribution) FROM {INDEX})"
)
# What a row of a group shows: its alerts lie far apart, so each further column costs.
_OF_GROUP = (
    "alert_id, level, rule_id, rule_name, event_time, entity_type, entity_value, hostname,"
    " previous_entity, attribution, certainty, count, lifecycle, verdict, assignee, suppressed_by,"
    " incident_id, tenant_uid"
)
_KEYS: dict[str, str] = {
    # Two tenants may call different devices the same. What a log may name stands last: nobody is
    # called so that it reads as another's.
    "entity": "coalesce(tenant_uid, '') || '|' || entity_type || '|' || entity_value",
    "rule": "rule_id",
    "incident": "CASE WHEN rule_id = 'headgate-incident' THEN alert_id ELSE incident_id END",
}
FACETS = ("level", "lifecycle", "attribution", "verdict", "assignee", "rule_id", "tenant_uid")
"""Columns that a filter takes several values of, and whose values are counted."""
_ORDERS: dict[str, tuple[str, ...]] = {
    "level": WORST_FIRST,
    "lifecycle": ("new", "triaged", "closed"),
}


@dataclass(frozen=True)
class ListFilter:
    """Which alerts a list shows; an empty field wants all."""

    text: str = ""
    facets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By a column of `FACETS` the values wanted; '' is none."""
    entity: str = ""
    incident: str = ""
    since: datetime | None = None
    until: datetime | None = None
    muted: bool = False

    def base(self) -> tuple[str, ReaderRow]:
        """Conditions but for the facets, and their parameters."""
        wanted: dict[str, tuple[str, Any]] = {
            "text": (_text_condition(self.text), self.text or None),
            "entity": (
                "(entity_value = $entity OR src_ip = $entity OR alert_id IN (SELECT alert_id"
                f" FROM {INDEX} WHERE list_has_any(names, ['user|' || lower($entity),"
                " 'host|' || lower($entity)])))",
                self.entity or None,
            ),
            "incident": (
                "(incident_id = $incident OR alert_id = $incident)",
                self.incident or None,
            ),
            "since": ("event_time >= $since", self.since),
            "until": ("event_time < $until", self.until),
        }
        used = {name: pair for name, pair in wanted.items() if pair[1] is not None}
        topic = [] if self.muted else ["suppressed_by IS NULL"]
        conditions = [*topic, *(text for text, _ in used.values())] or ["TRUE"]
        return " AND ".join(conditions), {name: value for name, (_, value) in used.items()}

    def sql(self) -> tuple[str, ReaderRow]:
        """All conditions, and their parameters."""
        condition, params = self.base()
        for column, values in self.facets.items():
            if values:
                named = {f"f_{column}_{number}": value for number, value in enumerate(values)}
                fits = f"{column} IN ({', '.join('$' + name for name in named)})"
                # '' is none; a comparison is quicker than a `coalesce` of each row.
                condition += (
                    f" AND ({fits} OR {column} IS NULL)" if "" in values else f" AND {fits}"
                )
                params |= named
        return condition, params


def _text_condition(text: str) -> str:
    """Whether a row has the text in its names, or its id or address begins with it."""
    conditions = ["contains(sought, lower($text))"]
    # Looked at only where it can be one: each column of texts costs as much as the first.
    if re.fullmatch(r"[0-9a-fA-F]+", text):
        conditions.append("starts_with(alert_id, lower($text))")
    if re.fullmatch(r"[0-9a-fA-F.:]+", text):
        conditions.append("starts_with(src_ip, $text)")
    return f"({' OR '.join(conditions)})"


@dataclass(frozen=True)
class AlertRows:
    """One page of a list."""

    rows: list[ReaderRow]
    next: str | None


@dataclass(frozen=True)
class FacetCounts:
    """How many alerts a filter means, and how many each value of a facet would."""

    total: int
    facets: dict[str, list[tuple[str, str, int]]]
    """By facet: value, what to call it, alerts; as if this facet alone were open."""


@dataclass(frozen=True)
class AlertGroup:
    """Alerts that belong together, the newest of them shown."""

    key: str
    alerts: int
    open: int
    severity_id: int
    newest: datetime
    rows: list[ReaderRow]


def alert_rows(reader: Reader, wanted: ListFilter, limit: int, cursor: str | None) -> AlertRows:
    """One page, newest first by the time of the first revision: no later one moves an alert."""
    condition, params = wanted.sql()
    question = {name: str(value) for name, value in params.items()} | {"muted": str(wanted.muted)}
    # The time of the first revision and the id: an alert that changes keeps its place.
    if cursor:
        time, alert_id = reader_cursor(cursor, question, 2)
        params |= {"after": parse_instant(time), "after_id": alert_id}
        condition += (
            " AND (first_event_time < $after"
            " OR (first_event_time = $after AND alert_id > $after_id))"
        )
    rows = reader.rows(
        # Chosen by the columns of the filter; the others are read of the chosen rows alone.
        f"{_CURRENT} SELECT * EXCLUDE (place_kept, kind, sought) FROM listed WHERE place_kept IN ("
        f"SELECT place_kept FROM listed WHERE {condition}"
        # One row more than is shown tells whether there is a next page.
        f" ORDER BY first_event_time DESC, alert_id LIMIT {limit + 1})"
        " ORDER BY first_event_time DESC, alert_id",
        params,
        needs=NEEDS,
        kept=True,
    )
    page = rows[:limit]
    last = page[-1] if len(rows) > limit else None
    return AlertRows(
        page,
        cursor_of(question, last["first_event_time"].isoformat(), last["alert_id"])
        if last
        else None,
    )


def every(reader: Reader, wanted: ListFilter) -> Iterator[ReaderRow]:
    """All alerts of a filter, page after page."""
    cursor = None
    while True:
        page = alert_rows(reader, wanted, CSV_PAGE, cursor)
        yield from page.rows
        cursor = page.next
        if cursor is None:
            return


def facet_counts(reader: Reader, wanted: ListFilter) -> FacetCounts:
    """How many alerts there are by each facet."""
    condition, params = wanted.base()
    everything = " AND ".join(["TRUE", *_conditions(wanted)])
    parts = [
        f"SELECT '' AS facet, '' AS value, '' AS name, sum(n) AS n FROM fitting WHERE {everything}"
    ]
    for facet in FACETS:
        # As if this facet alone were open, so that another value of it can be chosen.
        others = " AND ".join(["TRUE", *_conditions(wanted, facet)])
        name = "any_value(rule_name)" if facet == "rule_id" else "''"
        parts.append(
            f"SELECT '{facet}', {facet}, {name}, sum(n) FROM fitting WHERE {others} GROUP BY ALL"
        )
    rows = reader.rows(
        # The alerts are gone through once for all facets, by the one number that stands for all.
        f"{_CURRENT}, fitting AS MATERIALIZED (SELECT * EXCLUDE (status), status AS attribution"
        f" FROM (SELECT kind, count(*) AS n FROM listed WHERE {condition} GROUP BY kind)"
        f" JOIN {KINDS} USING (kind)) {' UNION ALL '.join(parts)}",
        params
        | {f"f_{column}": list(values) for column, values in wanted.facets.items() if values},
        needs=NEEDS,
        kept=True,
    )
    counted: dict[str, list[ReaderRow]] = {facet: [] for facet in FACETS}
    total = 0
    for row in rows:
        if row["facet"]:
            counted[row["facet"]].append(row)
        else:
            total = int(row["n"] or 0)
    return FacetCounts(
        total, {facet: _ordered(rows, facet, wanted) for facet, rows in counted.items()}
    )


def _conditions(wanted: ListFilter, but: str = "") -> list[str]:
    return [
        f"list_contains($f_{column}, {column})"
        for column, values in wanted.facets.items()
        if values and column != but
    ]


def grouped(
    reader: Reader, wanted: ListFilter, by: GroupBy, page: int
) -> tuple[list[AlertGroup], int]:
    """Groups, the gravest first, and how many there are; `page` counts from 0."""
    condition, params = wanted.sql()
    key = _KEYS[by]
    totals = reader.rows(
        # `groups` is counted before the limit takes its page, so it is of all groups.
        f"""{_CURRENT}
        SELECT {key} AS group_key, count(*) AS group_alerts, max(severity_id) AS group_severity,
               count(*) FILTER (lifecycle <> 'closed') AS group_open,
               max(event_time) AS group_newest, count(*) OVER () AS groups
        FROM listed WHERE {condition} AND {key} IS NOT NULL GROUP BY group_key
        ORDER BY group_severity DESC, group_newest DESC, group_key
        LIMIT {GROUPS} OFFSET {page * GROUPS}""",
        params,
        needs=NEEDS,
        kept=True,
    )
    rows = reader.rows(
        f"""{_CURRENT}
        SELECT {_OF_GROUP}, {key} AS group_key FROM listed
        WHERE {condition} AND {key} IN (SELECT unnest($group_keys))
        QUALIFY row_number() OVER (PARTITION BY group_key
                                   ORDER BY first_event_time DESC, alert_id) <= {SHOWN_OF_GROUP}
        ORDER BY first_event_time DESC, alert_id""",
        params | {"group_keys": [str(each["group_key"]) for each in totals]},
        needs=NEEDS,
        kept=True,
    )
    shown: dict[str, list[ReaderRow]] = {}
    for row in rows:
        shown.setdefault(row["group_key"], []).append(row)
    groups = [
        AlertGroup(
            each["group_key"],
            each["group_alerts"],
            each["group_open"],
            each["group_severity"],
            each["group_newest"],
            shown[each["group_key"]],
        )
        # What a commit between the two questions took away is not shown as an empty group.
        for each in totals
        if each["group_key"] in shown
    ]
    return groups, int(totals[0]["groups"]) if totals else 0


def _ordered(
    rows: Sequence[ReaderRow], facet: str, wanted: ListFilter
) -> list[tuple[str, str, int]]:
    number = {str(row["value"]): int(row["n"]) for row in rows}
    names = {str(row["value"]): str(row["name"]) for row in rows if row["name"]}
    # A status can be added that no alert has, for one may get it.
    always = _ORDERS[facet] if facet == "lifecycle" else ()
    for value in (*wanted.facets.get(facet, ()), *always):
        # A value that is chosen stays to be unchosen, also where nothing has it any more.
        number.setdefault(value, 0)
    order = _ORDERS.get(facet)
    values = sorted(
        number,
        # By the value as well: what counts the same keeps its place from one look to the next.
        key=lambda v: ((order.index(v) if v in order else -1) if order else -number[v], v),
    )
    return [(value, names.get(value, value), number[value]) for value in values]
