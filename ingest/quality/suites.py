"""What is expected, as Great Expectations' own objects over the frames of `found`.

They are declared once, so a notebook can run the same suites over a frame of its own.
The library takes seconds to import: it is imported only when suites are made.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any

from infra.errors import Usage
from ingest.parsing.ocsf import ACTION, KINDS, SEVERITY, STATUS
from ingest.parsing.source import lookup
from ingest.quality.measurements import HOUR, RANGES, Written, is_self_event, presence
from ingest.quality.required_columns import ONE_OF, REQUIRED
from ingest.quality.source_silence import span_text

if TYPE_CHECKING:
    import pandas as pd
    from great_expectations.expectations.expectation import Expectation

    from ingest.quality.source_silence import Silence

DEAD_SHARE = 0.05
"""More dead letters than this are no accident of single lines but a source that is read wrongly."""
OLDEST_SECONDS = 400 * 86_400
"""Beyond a year and a month an event is not late: its year or its zone was taken wrongly."""
AHEAD_SECONDS = 86_400
"""A day covers every zone; a clock further in the future is wrong."""
ADDRESS = r"^(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?!$)|$)){4}$|^(?=.*:.*:)[0-9a-f:]{2,39}$"
"""Spelled canonically: four numbers up to 255, or an IPv6 address in lower case."""
MOSTLY = 0.99
"""What a class requires may be missing in one of a hundred: some records do not have it."""
LEAST_VOLUME, MOST_VOLUME = 0.2, 5.0
"""A source's hour against the same hour last week: a fifth to five times is a week's weather."""

_DISPOSITIONS = (*range(28), 99)
FINDING_STATUS = (*range(7), 99)
_SET = "is a value of its class"
NEVER_SO_SILENT = "no source is silent for longer than it ever was"


@dataclass(frozen=True)
class Suite:
    """Expectations about one frame. `key` names the column that examples are given by."""

    name: str
    frame: pd.DataFrame
    expectations: list[Expectation]
    key: str | None = None
    says: dict[str, str] = field(default_factory=dict)
    """A sentence to each value of `key`, where one says more than the value."""
    since: datetime | None = None
    until: datetime | None = None


def suites(written: Written) -> Iterator[Suite]:
    """The suites that there is something to check for, of the interval they look at."""
    interval = (written.since, written.until)
    if written.total:
        yield Suite("events", written.rows, event_expectations(), None, {}, *interval)
        yield sources_of(written)
        yield from _of_classes(written)
    if written.silences:
        yield freshness(written.silences, written.until)
    if compares(written) and written.volumes is not None:
        yield volume(written.volumes, written.hour)


def compares(written: Written) -> bool:
    """Whether a source's hour can be held against the same hour last week."""
    return written.volumes is not None and bool(written.volumes["ratio"].notna().any())


def event_expectations() -> list[Expectation]:
    """What holds for the rows of silver.event; `notes` say it in words."""
    gxe = library()
    filled = ("event_uid", "source", "class_uid", "type_uid", "lag_seconds")
    return [
        *(gxe.ExpectColumnValuesToNotBeNull(column=c, notes=f"{c} is there") for c in filled),
        gxe.ExpectColumnValuesToBeUnique(column="event_uid", notes="event_uid is there once"),
        gxe.ExpectColumnValuesToBeInSet(
            column="class_uid", value_set=sorted(KINDS), notes="class_uid is a class we write"
        ),
        gxe.ExpectColumnPairValuesToBeEqual(
            column_A="type_uid",
            column_B="type_uid_of_class",
            notes="type_uid is class_uid * 100 + activity_id",
        ),
        gxe.ExpectColumnValuesToBeBetween(
            column="lag_seconds",
            min_value=-AHEAD_SECONDS,
            max_value=OLDEST_SECONDS,
            mostly=0.99,
            notes="time lies from 400 days before arrival to a day after it, for 99 %",
        ),
        gxe.ExpectColumnValuesToMatchRegex(
            column="src_ip", regex=ADDRESS, notes="src_ip is an address, where there is one"
        ),
        gxe.ExpectColumnValuesToBeNull(
            column="damaged_json", notes="more and unmapped are JSON, where they are there"
        ),
    ]


def source_expectations() -> list[Expectation]:
    """What holds for each source, given as one row `source, rows, dead, dead_share`."""
    gxe = library()
    return [
        gxe.ExpectColumnValuesToBeInSet(
            column="readable", value_set=[True], notes="source is one that can be read"
        ),
        gxe.ExpectColumnValuesToBeBetween(
            column="dead_share",
            max_value=DEAD_SHARE,
            notes=f"dead letters are at most {DEAD_SHARE:.0%} of each source",
        ),
        gxe.ExpectColumnValuesToBeBetween(
            column="lag_seconds",
            min_value=-AHEAD_SECONDS,
            max_value=AHEAD_SECONDS,
            notes="half of a source's live events come within a day of their time",
        ),
    ]


def sources_of(written: Written) -> Suite:
    """Each source as one row, with whether it can be read."""
    frame = written.shares.sort_values("dead_share", ascending=False)  # the worst come first
    frame["readable"] = [_readable(name) for name in frame["source"]]
    if "lag_seconds" not in frame:
        frame["lag_seconds"] = None
    lags = dict(zip(frame["source"], frame["lag_seconds"], strict=True))
    says = {
        str(
            itertuple.source
        ): f"{itertuple.source}: {itertuple.dead} dead letters of {itertuple.rows}"
        + (
            f", come {span_text(lags[itertuple.source])} late"
            if _odd(lags[itertuple.source])
            else ""
        )
        for itertuple in frame.itertuples()
    }
    expectations = source_expectations()
    return Suite("sources", frame, expectations, "source", says, written.since, written.until)


def _odd(lag: Any) -> bool:
    return lag is not None and abs(lag) > AHEAD_SECONDS


def _readable(source: str) -> bool:
    """Whether there is a parser for a source; a family such as zeek reads any of its kinds."""
    try:
        lookup(source)
    except Usage:
        return False
    return True


def _of_classes(written: Written) -> Iterator[Suite]:
    rows = written.rows
    if "dead" not in rows:
        return
    rows = rows[~rows["dead"].astype(bool) & ~is_self_event(rows)]
    for uid, frame in rows.groupby("class_uid"):
        if uid in KINDS:
            name = f"class {uid} {KINDS[uid].name}"
            expectations = class_expectations(int(uid), frame)
            yield Suite(name, frame, expectations, "event_uid", {}, written.since, written.until)


def class_expectations(uid: int, frame: pd.DataFrame) -> list[Expectation]:
    """What OCSF says of the events of one class: what is required, value sets, ranges."""
    gxe = library()
    groups = [(name,) for name in REQUIRED.get(uid, ())] + list(ONE_OF.get(uid, ()))
    # Classes of category 2 are findings: OCSF gives their status other values (new, resolved, ...).
    of_status = FINDING_STATUS if uid // 1000 == 2 else STATUS
    sets = {
        # 99 is OCSF's Other, with the product's word in `activity_name`.
        "activity_id": (*KINDS[uid].activities, 99),
        "category_uid": (KINDS[uid].category_uid,),
        "severity_id": SEVERITY,
        "status_id": of_status,
        "action_id": ACTION,
        "disposition_id": _DISPOSITIONS,
    }
    ranges = {"src_port": 65535, "dst_port": 65535, "http_code": 999, "duration": None}
    ranges |= dict.fromkeys(("bytes_in", "bytes_out"))
    return [
        *(
            gxe.ExpectColumnValuesToNotBeNull(
                column=presence(group), mostly=MOSTLY, notes=f"{' or '.join(group)} is there"
            )
            for group in groups
        ),
        *(
            gxe.ExpectColumnValuesToNotBeNull(column=name, notes=f"{name} is there")
            for name in ("activity_id", "category_uid", "severity_id")
        ),
        *(
            gxe.ExpectColumnValuesToBeInSet(
                column=name, value_set=sorted(values), notes=f"{name} {_SET}"
            )
            for name, values in sets.items()
            # An expectation over nothing is met: it would only be noise in the list.
            if frame[name].notna().any()
        ),
        *(
            gxe.ExpectColumnValuesToBeBetween(
                column=name,
                min_value=0,
                max_value=most,
                notes=f"{RANGES.get(name, name)} is at least 0"
                + (f" and at most {most}" if most else ""),
            )
            for name, most in ranges.items()
            if frame[name].notna().any()
        ),
    ]


def freshness(silences: tuple[Silence, ...], until: datetime | None) -> Suite:
    """Whether each source was heard as lately as its habit is."""
    import pandas as pd

    frame = pd.DataFrame(
        {
            "source": [silence.source for silence in silences],
            "silent_seconds": [silence.known for silence in silences],
            # A source that is still being learned has none; without the type, a column of None
            # alone is one of objects, which cannot be compared.
            "allowed_seconds": pd.Series(
                [silence.allowed for silence in silences], dtype="float64"
            ),
        }
    )
    expected = library().ExpectColumnPairValuesAToBeGreaterThanB(
        column_A="allowed_seconds",
        column_B="silent_seconds",
        or_equal=True,
        ignore_row_if="either_value_is_missing",
        notes=NEVER_SO_SILENT,
    )
    says = {silence.source: silence.sentence() for silence in silences}
    return Suite("freshness", frame, [expected], "source", says, None, until)


def volume(volumes: pd.DataFrame, hour: datetime | None) -> Suite:
    """Whether each source's last full hour is like the same hour a week before."""
    expected = library().ExpectColumnValuesToBeBetween(
        column="ratio",
        min_value=LEAST_VOLUME,
        max_value=MOST_VOLUME,
        notes=f"each source's events of an hour are {LEAST_VOLUME:.0%} to {MOST_VOLUME:.0%} of "
        "the same hour last week",
    )
    says = {
        str(
            itertuple.source
        ): f"{itertuple.source}: {itertuple.now} events, {itertuple.before} a week before"
        for itertuple in volumes.itertuples()
    }
    end = None if hour is None else hour + HOUR
    return Suite("volume", volumes, [expected], "source", says, hour, end)


def library() -> Any:
    """The library's expectations; by name, because it exports none of them explicitly."""
    # Read at import; without it each run reports itself to the library's makers.
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    return import_module("great_expectations.expectations")
