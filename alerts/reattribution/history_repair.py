"""The repair of history: leases and attributions as today's lines say, beside the running jobs.

Only addresses in doubt are looked at (`alerts.reattribution.dirty_addresses`). Of each, what was
said is compared with what its lines say, the differences are appended to silver.dhcp_segment, and
findings whose device is another one now get a row of gold.attribution with the finding inside, of
which job `alert` makes a revision; attributed events get a row of their own
(`alerts.reattribution.event_repair`). Everything is computed from the tables and only appended:
killed anywhere, the next run finds what is left to do, and a run with nothing to do writes nothing.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from alerts.domain.entity import event_instant, micros
from alerts.lifecycle.alert_lookup import Counted, with_alerts
from alerts.reattribution.dirty_addresses import Doubts, ScopedAddress
from alerts.reattribution.event_repair import in_doubt, retold, said_until
from alerts.tables import FINDING, HEARTBEAT
from enrich.attribution.asof_join import newest_cover, statements
from enrich.attribution.scopes import set_by_hand
from enrich.attribution.segment_corrections import CorrectionStamp, lines_since
from enrich.attribution.segment_corrections import correct_segments as corrections
from enrich.attribution.server_liveness import server_activity
from enrich.attribution.stream_join import attribution_as_of, split
from enrich.dhcp.lease_rules import LeaseEvent, Segment
from enrich.dhcp.sessions_job import FUTURE_SECONDS, every_line, tracker_limits
from enrich.dhcp.stateful_operator import LINE
from enrich.tables import ATTRIBUTED_EVENT, ATTRIBUTION, DHCP_SEGMENT
from infra.config.settings import ScopeSettings, Settings
from infra.delta.retention import complete_since
from infra.errors import Fatal
from infra.process.log import say
from infra.process.os_user import acting_user
from infra.streaming.job_lock import JobLock
from infra.streaming.lake import Lake
from infra.streaming.outbox import put_row
from ingest.tables import EVENT

REPAIR_JOB = "mend"
"""Its folder beside the checkpoints; it is no streaming job and its commits carry no marker."""

_CHUNK = 500
"""Addresses of one commit: what is held in memory, and what a crash does again."""

_MOST_TOLD = 20
"""Findings that are named one by one where they cannot be attributed anew."""

_RECENT = timedelta(hours=1)

_TIMES = ("seg_start", "seg_end", "session_start", "session_end", "known_at", "learned_at")


@dataclass
class RepairOutcome:
    """What a repair came to."""

    run: str
    dry: bool = False
    addresses: int = 0
    changed: int = 0
    leases: int = 0
    segments: int = 0
    findings: int = 0
    left_out: int = 0
    events: int = 0


def repair_history(
    lake: Lake,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    ip: str | None = None,
    dry: bool = False,
    tell: Callable[[str], None] = lambda sentence: None,
) -> RepairOutcome:
    """Repair addresses of which a DHCP line or lease lies in `[since, until)`, or one address.

    Asked for neither, what came to be in doubt since the last run. Raises `Fatal` when job
    `sessions` has never said how far it is, and when another repair of history runs.
    """
    folder = lake.settings.checkpoint_root / REPAIR_JOB
    # Two repairs would each append what the other one has appended already.
    lock = JobLock(folder, REPAIR_JOB)
    try:
        doubts = Doubts(lake, folder, micros(known_at(lake)), said_until(lake.settings))
        usual = since is None and until is None and ip is None
        addresses = (
            doubts.since_last(datetime.now(UTC)) if usual else doubts.asked(since, until, ip)
        )
        done = RepairOutcome(uuid.uuid4().hex[:12], dry, addresses=len(addresses))
        names = sorted(addresses)
        for index in range(0, len(names), _CHUNK):
            _chunk(lake, {name: addresses[name] for name in names[index : index + _CHUNK]}, done)
            tell(f"{min(index + _CHUNK, len(names)):,} of {len(names):,} addresses")
        if usual:
            later = doubts.given_away()
            for name, first_us in in_doubt(lake, doubts.earlier().said_us).items():
                later[name] = min(first_us, later.get(name, first_us))
            # What a dry run did not write above would be counted again here.
            _later(lake, {n: us for n, us in later.items() if not (dry and n in addresses)}, done)
            if not dry:
                # Last of all: a crash before it makes the next run look at the same addresses
                # again.
                doubts.done()
        return done
    finally:
        lock.release()


def known_at(lake: Lake) -> datetime:
    """How far job `sessions` has got, by its newest heartbeat."""
    newest = newest_beat(lake.read(DHCP_SEGMENT).where("kind = 'heartbeat'"), "known_at")
    if newest is None:
        raise Fatal("job sessions has not said yet how far it is (no heartbeat); run it first")
    return newest


def newest_beat(heartbeats: DataFrame, column: str) -> datetime | None:
    """The newest time among a table's heartbeats; None when it has none."""
    # Of a job that runs, the newest files tell; only of one that stands still all are read.
    recent = heartbeats.where(F.col(column) >= F.lit(datetime.now(UTC) - _RECENT))
    for rows in (recent, heartbeats):
        newest_us = rows.agg(F.max(F.unix_micros(column))).collect()[0][0]
        if newest_us is not None:
            return event_instant(newest_us)
    return None


def _chunk(lake: Lake, addresses: Mapping[ScopedAddress, int], done: RepairOutcome) -> None:
    """Some addresses: their leases in one commit, then their findings in another."""
    since_us = min(addresses.values())
    # What was said is read before the lines: so no line is missing that it rests on.
    message = _statements(lake, addresses, since_us)
    lines = _lines(lake, addresses, since_us)
    stamp = CorrectionStamp(micros(known_at(lake)), micros(datetime.now(UTC)))
    kept_us = kept_since(lake.settings, stamp)
    rows: list[Segment] = []
    for address, first_us in addresses.items():
        summary = corrections(
            message.get(address, []),
            lines.get(address, []),
            first_us,
            stamp,
            tracker_limits(lake.settings.jobs),
            kept_us,
        )
        done.changed += bool(summary)
        rows += summary
    done.segments += len(rows)
    done.leases += len({row.session_id for row in rows})
    note_of_commit = json.dumps({REPAIR_JOB: done.run})
    if rows and not done.dry:
        # Downstream, rows of some seconds ago would be too late: they are known now.
        now_us = max(stamp.known_us, micros(known_at(lake)))
        rows = [msgspec.structs.replace(row, known_at=now_us) for row in rows]
        # Leases first: killed here, the next run finds the findings that disagree with them.
        lake.add(DHCP_SEGMENT, [_row(row) for row in rows], note_of_commit)
    segments = _segments(lake, addresses, [_row(row) for row in rows] if done.dry else [])
    _retell(lake, addresses, segments, stamp, done)


def _later(lake: Lake, asked: Mapping[ScopedAddress, int], done: RepairOutcome) -> None:
    """Addresses whose leases are as they should be, and what was said of them may not be."""
    names = sorted(asked)
    for index in range(0, len(names), _CHUNK):
        some = {name: asked[name] for name in names[index : index + _CHUNK]}
        stamp = CorrectionStamp(micros(known_at(lake)), micros(datetime.now(UTC)))
        _retell(lake, some, _segments(lake, some), stamp, done)


def _retell(
    lake: Lake,
    addresses: Mapping[ScopedAddress, int],
    segments: DataFrame,
    stamp: CorrectionStamp,
    done: RepairOutcome,
) -> None:
    """Findings and attributed events of some addresses, as `segments` say now."""
    counted = _attributions(lake, addresses, segments, stamp)
    attributions = counted.rows
    for line in told_of_left_out(counted.left_out):
        say(f"repair: {line}")
    done.left_out += len(counted.left_out)
    events = retold(lake, addresses, segments)
    done.findings += len(attributions)
    done.events += len(events)
    for table, rows in ((ATTRIBUTION, attributions), (ATTRIBUTED_EVENT, events)):
        if rows and not done.dry:
            lake.add(table, rows, json.dumps({REPAIR_JOB: done.run}))


def told_of_left_out(sentences: Sequence[str]) -> Iterator[str]:
    """What to say of findings that could not be attributed anew: one alert may fold thousands."""
    for sentence in sentences[:_MOST_TOLD]:
        yield f"{sentence}; restore the table from a backup and repair that address again"
    if (more := len(sentences) - _MOST_TOLD) > 0:
        yield f"{more:,} more findings stay as they were attributed: alerts of theirs are damaged"


def _segments(
    lake: Lake, asked: Iterable[ScopedAddress], repainted: Sequence[Mapping[str, Any]] = ()
) -> DataFrame:
    """All that is said of some addresses; `repainted`: with what a dry run did not write."""
    there = _of(lake.read(DHCP_SEGMENT), asked)
    if not repainted:
        return there
    return there.unionByName(lake.spark.createDataFrame(list(repainted), DHCP_SEGMENT.schema))


def kept_since(settings: Settings, stamp: CorrectionStamp) -> int:
    """Since when every DHCP line is there, by its time; retention goes by arrival."""
    now = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=stamp.learned_us)
    since = complete_since(settings, EVENT, now)
    # A clock ahead by that much gives a line a later time than its arrival, which retention goes
    # by.
    return 0 if since is None else micros(since) + FUTURE_SECONDS * 1_000_000


def _of(rows: DataFrame, asked: Iterable[ScopedAddress]) -> DataFrame:
    return rows.where(F.col("ip").isin(sorted({ip for _, ip in asked})))


def _statements(
    lake: Lake, addresses: Mapping[ScopedAddress, int], since_us: int
) -> dict[ScopedAddress, list[Segment]]:
    """Statements about addresses, with those that tell where an older lease ends."""
    oldest = F.timestamp_micros(F.lit(lines_since(since_us)))
    rows = _of(lake.read(DHCP_SEGMENT), addresses).where(
        F.col("session_id").isNotNull() & (F.col("seg_end") >= oldest)
    )
    plain = ("scope", "ip", "mac", "hostname", "session_id", "rev", "kind")
    wanted = rows.select(
        *plain, *[F.unix_micros(name).alias(name) for name in _TIMES], "evidence.*"
    )
    results: dict[ScopedAddress, list[Segment]] = {}
    for row in wanted.toArrow().to_pylist():
        address = (row["scope"], row["ip"])
        # Spark filtered by address alone; the same one of another scope is taken out here.
        if address in addresses:
            row["event_uids"] = tuple(row["event_uids"] or ())
            results.setdefault(address, []).append(Segment(**row))
    return results


def _lines(
    lake: Lake, addresses: Mapping[ScopedAddress, int], since_us: int
) -> dict[ScopedAddress, list[LeaseEvent]]:
    first_us = lines_since(since_us)
    # The first filter only spares reading old files; clocks that are set right move a line.
    wrong = max(map(abs, lake.settings.jobs.clock_ahead_seconds.values()), default=0)
    old = F.timestamp_micros(F.lit(first_us - round(wrong * 1_000_000)))
    lines = every_line(lake.read(EVENT).where(F.col("time") >= old), lake.settings.jobs)
    wanted = _of(lines, addresses).where(F.col("time_us") >= first_us).select(*LINE)
    result: dict[ScopedAddress, list[LeaseEvent]] = {}
    for row in wanted.toArrow().to_pylist():
        address = (row["scope"], row["ip"])
        if address in addresses:
            result.setdefault(address, []).append(LeaseEvent(**row))
    return result


def _attributions(
    lake: Lake,
    addresses: Mapping[ScopedAddress, int],
    segments: DataFrame,
    stamp: CorrectionStamp,
) -> Counted:
    """Findings about these addresses whose device is another one than was said, attributed anew."""
    settings = lake.settings
    starts = lake.spark.createDataFrame(
        [(scope, ip, event_instant(us)) for (scope, ip), us in addresses.items()],
        "scope string, ip string, first timestamp",
    )
    findings = lake.read(FINDING).where(
        (F.col("rule_id") != HEARTBEAT) & (F.col("mode") != "import")
    )
    waiting, passed = split(_of(findings, addresses), settings.scopes)
    # DHCP may have given away what is set by hand: that makes the finding's address doubtful.
    nobody = F.lit(None).cast(FINDING.schema["holder"].dataType)
    static = passed.where("holder.status = 'static'").withColumn("holder", nobody)
    all_ = waiting.unionByName(static.select(waiting.columns))
    mine = all_.join(F.broadcast(starts), ["scope", "ip"]).where("event_time >= first")
    mine = mine.drop("first")
    named = _named(mine, segments, settings.scopes)
    changed = _changed(named, _newest(lake, mine))
    times = {
        row.finding_id: row.us
        for row in changed.select("finding_id", F.unix_micros("event_time").alias("us")).collect()
    }
    if not times:
        return Counted([], [])
    few = lake.spark.createDataFrame([(uid,) for uid in times], "finding_id string")
    mine = mine.join(F.broadcast(few), "finding_id", "left_semi")
    again = attribution_as_of(
        mine,
        segments,
        via="repair",
        complete_up_to=event_instant(stamp.known_us),
        scopes=settings.scopes,
        liveness=server_activity(
            settings.lake_root,
            event_instant(min(times.values())),
            event_instant(max(times.values())),
        ),
    )
    select = _changed(again, _newest(lake, mine)).select(*ATTRIBUTION.schema.fieldNames(), "was")
    learned = event_instant(stamp.learned_us)
    rows = [row | {"attributed_at": learned} for row in select.toArrow().to_pylist()]
    # With the alert inside: job `alert` may have forgotten it since.
    return with_alerts(lake, rows)


def _named(findings: DataFrame, segments: DataFrame, scopes: Sequence[ScopeSettings]) -> DataFrame:
    """The device that each finding's address is given to now, without the evidence: most findings
    name the same one as before, and only the others are worth judging."""
    addressed = findings.select("finding_id", "scope", "ip", "event_time")
    newest_rows = newest_cover(addressed, statements(segments), carried=("mac", "session_id"))
    leased = F.col("s_mac").isNotNull()
    static = set_by_hand(F.col("scope"), F.col("ip"), scopes)
    # Only what tells devices apart: the evidence differs with each run and would look like a
    # change.
    holder = F.struct(
        F.when(static, "static").when(leased, "leased").otherwise("none").alias("status"),
        F.when(~static, F.col("s_mac")).alias("mac"),
        F.when(leased, F.col("s_session_id")).alias("session_id"),
    )
    rev = F.coalesce("s_rev", F.lit(-1).cast("long")).alias("rev")
    return newest_rows.select("finding_id", "event_time", holder.alias("holder"), rev)


def _newest(lake: Lake, findings: DataFrame) -> DataFrame:
    """What was said last of each of these findings, as `was`."""
    joined_text = lake.read(ATTRIBUTION).join(
        findings.select("finding_id"), "finding_id", "left_semi"
    )
    return joined_text.groupBy("finding_id").agg(
        F.max_by(F.struct("rev", "holder"), "rev").alias("was")
    )


def _changed(attributions: DataFrame, newest: DataFrame) -> DataFrame:
    """Rows that name another device than the newest ones did, by a newer statement."""
    same = F.lit(True)
    for name in ("status", "mac", "session_id"):
        same = same & F.col(f"holder.{name}").eqNullSafe(F.col(f"was.holder.{name}"))
    return attributions.join(newest, "finding_id").where(~same & (F.col("rev") > F.col("was.rev")))


def _row(segment: Segment) -> dict[str, Any]:
    """A correction as a row of silver.dhcp_segment."""
    row = {name: getattr(segment, name) for name in Segment.__struct_fields__}
    evidence = {"event_uids": list(row.pop("event_uids") or ()), "ended": row.pop("ended")}
    times = {name: None if row[name] is None else event_instant(row[name]) for name in _TIMES}
    return row | times | {"evidence": evidence}


def note_repair(
    settings: Settings, done: RepairOutcome, detail: Mapping[str, Any], outcome: str = "ok"
) -> None:
    """Leave a row for ops.audit: who, what was asked, and what came of it."""
    instant = datetime.now(UTC)
    put_row(
        settings.home.absolute() / "spool" / "audit",
        f"repair-{instant:%Y%m%dT%H%M%S%f}",
        {
            "at": instant.isoformat(),
            "who": acting_user(),
            "act": "repair",
            "target": "silver.dhcp_segment",
            "detail": json.dumps({**detail, **asdict(done)}),
            "outcome": outcome,
        },
    )
