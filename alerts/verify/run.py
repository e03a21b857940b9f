"""`headgate verify`: events and findings of a span through the engine again, beside the tables."""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
from pyspark.sql import functions as F

from alerts.anomaly.store import ModelStore
from alerts.backtest.fold import Refold
from alerts.backtest.history_match import EventHistory, attributed_history
from alerts.backtest.rule_selection import warm_up_seconds
from alerts.backtest.run import attributed_schema, chunk, findings_in_order, write_parts, write_rows
from alerts.compiler.enrichment_predicates import inventories
from alerts.compiler.model_rule_files import MODEL
from alerts.domain.alert_body import readable_body, require_whole
from alerts.domain.entity import micros
from alerts.domain.finding import RULE_FAILED
from alerts.lifecycle.risk_score import INCIDENT, INCIDENT_REST, REACH
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import PackStore, RulePack
from alerts.tables import ALERT, FINDING, HEARTBEAT
from alerts.verify.differences import (
    AlertFacts,
    Batches,
    ComparedAlert,
    Difference,
    EventFacts,
    OneSidedFinding,
    Verified,
    compared_alert,
    judge_finding,
    judge_told,
)
from alerts.verify.models import judge_hours, known_of, read_hours
from infra.delta.duckdb_views import connect
from infra.delta.retention import furthest
from infra.errors import Fatal, Usage
from infra.storage.temp_dirs import scratch
from infra.streaming.lake import Lake
from infra.streaming.parquet_scan import files_between
from ingest.parsing.source import LIVE_MODES
from ingest.tables import EVENT

_NEEDS = ("gold.finding", "gold.alert", "gold.alert_action", "gold.attribution", "ops.ledger")
_SLACK = timedelta(seconds=60)
"""How long after a finding must be out its alert may still be on its way, beside all waiting."""

_Tell = Callable[[str], None]

_LIVE = f"rule_id <> '{HEARTBEAT}' AND mode <> 'import'"
_COMPARED = f"""
CREATE OR REPLACE TEMP TABLE compared AS
WITH history AS (
  SELECT finding_id, list(DISTINCT pack ORDER BY pack) AS packs, any_value(rule_id) AS rule_id,
         any_value(event_uid) AS event_uid, any_value(event_time) AS event_time
  FROM HISTORY WHERE received_at < $complete GROUP BY finding_id
),
stream AS (
  SELECT finding_id, max(pack) AS pack, any_value(rule_id) AS rule_id,
         any_value(event_uid) AS event_uid, any_value(event_time) AS event_time,
         count(*) AS times
  FROM gold.finding
  WHERE kind = 'event' AND {_LIVE}
    AND event_time >= $since AND event_time < $until AND received_at < $complete
  GROUP BY finding_id
)
SELECT finding_id, coalesce(s.rule_id, h.rule_id) AS rule_id,
       coalesce(s.event_uid, h.event_uid) AS event_uid,
       coalesce(s.event_time, h.event_time) AS event_time, s.pack,
       coalesce(h.packs, []) AS packs, coalesce(s.times, 1) AS times,
       (s.times = 1 AND list_contains(h.packs, s.pack)) IS TRUE AS same
FROM history h FULL JOIN stream s USING (finding_id)
"""
_ALERTS = """
SELECT alert_id, any_value(rule_id), max_by(dedup_key, revision), max_by(entity_value, revision),
       min(window_start), max(window_end), min_by(event_time, revision), max(received_at),
       max_by(count, revision), bool_or(reason IN ('attribution', 'superseded')),
       max_by(body, revision), max(revision)
FROM gold.alert WHERE window_end >= $begin AND window_start < $end GROUP BY alert_id
"""
REPAIRED = """
SELECT f.event_uid FROM gold.attribution a JOIN gold.finding f USING (finding_id)
WHERE a.event_time >= $begin AND a.event_time < $end
GROUP BY f.event_uid, a.finding_id, a.role
HAVING bool_or(a.via IN ('correction', 'late', 'repair', 'disproved'))
    OR count(DISTINCT a.holder.mac) > 1
"""
_ACTIONS = """
SELECT * FROM gold.alert_action
WHERE "at" < $end AND ("at" >= $begin OR action IN ('suppress', 'unsuppress'))
ORDER BY "at", action_id
"""


class Verification:
    """One comparison over events whose `time` is in [since, until)."""

    def __init__(self, lake: Lake, since: datetime, until: datetime, tell: _Tell) -> None:
        self._lake = lake
        self._settings = lake.settings
        self._store = PackStore(store_folder(lake.settings))
        self._span = (since, until)
        self._tell = tell
        self._strayed: set[str] = set()
        # DuckDB beside Spark: many small questions, each of which would cost Spark a second of
        # planning.
        self._duck = connect(
            lake.settings.lake_root, needs=_NEEDS, memory=lake.settings.api.statement_memory
        )

    def run(self) -> Verified:
        """Compare findings, then what is made of them.

        Raises `Fatal` before detection ever ran, `Usage` where retention took findings out.
        """
        try:
            self._require_kept()
            complete = self._complete()
            packs, lost = self._packs()
            # Lost packs are named, too: what they found cannot be told again.
            verified = Verified(
                self._span[0].isoformat(),
                self._span[1].isoformat(),
                complete.isoformat(),
                [*sorted(pack.hash for pack in packs), *sorted(lost)],
            )
            own = scratch(self._settings.scratch_root)
            with tempfile.TemporaryDirectory(dir=own, prefix="verify-") as folder:
                self._findings(verified, Path(folder), packs, lost, complete)
                self._hours(verified, packs)
                self._alerts(verified, Path(folder), packs, complete)
            return verified
        finally:
            self._duck.close()

    def _require_kept(self) -> None:
        kept = max(
            (
                latest
                for part in (FINDING, ALERT)
                if (latest := furthest(self._settings, part.name).latest)
            ),
            default=self._span[0],
        )
        if self._span[0] < kept:
            raise Usage(
                f"findings and alerts up to {kept:%Y-%m-%dT%H:%M:%SZ} were taken out "
                "(retention.gold_days): what the stream said then cannot be compared; "
                "begin later with --from"
            )

    def _ask(self, sql: str, **values: Any) -> list[tuple[Any, ...]]:
        return self._duck.execute(sql, values).fetchall()

    def _complete(self) -> datetime:
        """How far detection has finished its input."""
        beat = f"SELECT max(event_time) FROM gold.finding WHERE rule_id = '{HEARTBEAT}'"
        newest = self._ask(beat)[0][0]
        if newest is None:
            raise Fatal("detection has not said yet how far it is (no heartbeat in gold.finding)")
        instant: datetime = newest
        return instant.astimezone(UTC)

    def _packs(self) -> tuple[list[RulePack], set[str]]:
        """The packs that batches of the span used, and the hashes of those that are lost."""
        since, until = self._span
        named = self._ask(
            # Heartbeats name the pack as well: in a span without findings they alone do.
            "SELECT DISTINCT pack FROM gold.finding WHERE event_time >= $since "
            "AND event_time < $until UNION SELECT arg_min(pack, event_time) FROM gold.finding "
            f"WHERE rule_id = '{HEARTBEAT}' AND event_time >= $until",
            since=since,
            until=until,
        )
        # Events that came long after they happened were read by a pack of another day.
        batches = Batches(self._ledger())
        files = files_between(self._lake, EVENT, "time", since, until)
        names = {str(name) for (name,) in named if name}
        names |= {pack for file in files if (pack := batches.pack_of(Path(file.name).name))}
        packs = {name: self._pack(name) for name in sorted(names)}
        lost = {name for name, pack in packs.items() if pack is None}
        return [pack for pack in packs.values() if pack is not None], lost

    def _pack(self, name: str) -> RulePack | None:
        """The pack of that hash; None when it is lost."""
        try:
            return self._store.get(name)
        except Fatal:
            return None

    def _ledger(self) -> dict[tuple[str, int], str]:
        """The packs of batches, by job and number."""
        rows = self._ask("SELECT job, batch_id, pack FROM ops.ledger WHERE pack IS NOT NULL")
        return {(job, int(number)): pack for job, number, pack in rows}

    # -- findings --------------------------------------------------------------------------

    def _findings(
        self,
        verified: Verified,
        folder: Path,
        packs: Sequence[RulePack],
        lost: set[str],
        complete: datetime,
    ) -> None:
        since, until = self._span
        history, step = EventHistory(self._lake), chunk(until - since)
        files: list[str] = []
        begin, number = since, 0
        while begin < until and packs:
            end = min(begin + step, until)
            parts = history.parts(begin, end, str(self._store.folder), packs, LIVE_MODES)
            made = write_parts(parts, folder / "findings", number, self._tell)
            files += [str(folder / "findings" / file.name) for file in made]
            self._tell(f"findings up to {end:%Y-%m-%d %H:%M}")
            begin, number = end, number + 1
        strays, same = self._strays(files, complete)
        verified.same["finding"] = same
        events = self._events(strays)
        # Before judging, all at once: a question for each finding would read the tables as often.
        batches = self._batches(lost)
        for stray in strays:
            judged = judge_finding(stray, events.get(stray.event_uid), batches)
            if judged is not None:
                verified.differences.append(judged)
                self._strayed.add(stray.event_uid)

    def _strays(self, files: list[str], complete: datetime) -> tuple[list[OneSidedFinding], int]:
        if not files:  # DuckDB reads no empty list of files
            self._duck.execute(
                "CREATE TEMP TABLE history_rows AS SELECT * FROM gold.finding LIMIT 0"
            )
        history = "read_parquet($files)" if files else "history_rows"
        since, until = self._span
        params: dict[str, Any] = {"since": since, "until": until, "complete": complete}
        params |= {"files": files} if files else {}
        self._ask(_COMPARED.replace("HISTORY", history), **params)
        rows = self._ask(
            "SELECT finding_id, rule_id, event_uid, event_time, pack, packs, times "
            "FROM compared WHERE NOT same ORDER BY event_time, finding_id"
        )
        strays = [
            OneSidedFinding(fid, rule, uid, micros(instant), pack, tuple(packs), int(times))
            for fid, rule, uid, instant, pack, packs, times in rows
        ]
        return strays, int(self._ask("SELECT count(*) FROM compared WHERE same")[0][0])

    def _events(self, strays: Sequence[OneSidedFinding]) -> dict[str, EventFacts]:
        """What is to be said today of the events of stray findings, with the file they lie in."""
        if not strays:
            return {}
        uids = sorted({stray.event_uid for stray in strays})
        wanted_uids = self._lake.spark.createDataFrame([(uid,) for uid in uids], "event_uid string")
        rows = (
            EventHistory(self._lake)
            .events(*self._span)
            .select(
                "event_uid",
                F.col("duplicate_of").isNotNull().alias("duplicate"),
                F.col("dead_letter_reason").isNotNull().alias("dead"),
                F.col("_metadata.file_name").alias("file"),
            )
        )
        # Few ids against many events: broadcast, so that the events are not shuffled.
        collect = rows.join(F.broadcast(wanted_uids), "event_uid", "left_semi").collect()
        return {row.event_uid: EventFacts(row.duplicate, row.dead, row.file) for row in collect}

    def _batches(self, lost: set[str]) -> Batches:
        failed = self._ask(
            "SELECT DISTINCT fields['rule_id'], pack FROM gold.finding "
            "WHERE rule_id = $rule AND event_time >= $since AND event_time < $until",
            rule=RULE_FAILED,
            since=self._span[0],
            until=self._span[1],
        )
        return Batches(
            packs=self._ledger(),
            lost=lost,
            failed={(str(rule), str(pack)) for rule, pack in failed},
        )

    def _hours(self, verified: Verified, packs: Sequence[RulePack]) -> None:
        """What models told of the hours that they judged."""
        hours, result = read_hours(self._duck, *self._span)
        if not hours and not result:
            return
        named = {matched.pack for matched in result} - {pack.hash for pack in packs}
        every = [*packs, *(pack for name in sorted(named) if (pack := self._pack(name)))]
        known = known_of(self._duck, every, ModelStore(self._store.folder).get)
        verified.same["hour"], different = judge_hours(hours, result, known)
        verified.differences += different

    # -- correlations and alerts -----------------------------------------------------------

    def _alerts(
        self, verified: Verified, folder: Path, packs: Sequence[RulePack], complete: datetime
    ) -> None:
        """Recorded findings of events, attributed as known then, through the state again."""
        dedup = self._settings.alerts.dedup_seconds
        # An incident counts what was found a day before, unless it rests from one still older.
        # The fold has to begin with what the stream remembered when the span began.
        warm = max([REACH + INCIDENT_REST, *(warm_up_seconds(pack, dedup) for pack in packs)])
        begin = self._span[0] - timedelta(seconds=warm)
        # An alert raised in the span may count findings for one dedup window more.
        end = self._span[1] + timedelta(seconds=dedup)
        column = F.col("event_time")
        recorded = self._lake.read(FINDING).where(
            # A model's are those that its hours were found to say again.
            F.col("kind").isin("event", MODEL)
            & F.expr(_LIVE)
            & (column >= F.lit(begin))
            & (column < F.lit(end))
            & (F.col("received_at") < F.lit(complete))
        )
        rows = attributed_history(recorded, EventHistory(self._lake), self._settings)
        made = write_rows(rows, folder / "attributed", "0-", attributed_schema())
        self._tell(f"{sum(file.rows for file in made):,} findings, folding them again")
        files = [folder / "attributed" / file.name for file in made]
        memory = self._settings.api.statement_memory
        wanted = {
            rule.id
            for pack in packs
            for rule in (*pack.rules, *pack.correlations, *pack.queries, *pack.models)
        }
        refold = Refold(
            self._store.get,
            self._settings,
            wanted | {RULE_FAILED},
            incidents=True,
            index=inventories(self._settings),
        )
        sorted_rows = findings_in_order(files, folder / "sorting", memory)
        # Both are in order already; merging keeps findings out of memory.
        refold.run(heapq.merge(sorted_rows, self._actions(begin, end), key=_available))
        self._compare(verified, refold, begin, end)

    def _compare(self, verified: Verified, refold: Refold, begin: datetime, end: datetime) -> None:
        span = (micros(self._span[0]), micros(self._span[1]))
        facts = AlertFacts(
            finished=self._through(),
            repaired={uid for (uid,) in self._ask(REPAIRED, begin=begin, end=end)},
            strays=self._strayed,
        )
        sides = {
            "correlation": (
                [_correlated(row) for row in self._correlations(begin, end)],
                [_correlated(row) for row in refold.findings],
            ),
            "alert": (
                self._recorded(begin, end),
                [compared_alert(brief) for brief in refold.alerts.values()],
            ),
        }
        for what, (stream, history) in sides.items():
            same, different = judge_told(what, stream, history, span, facts)
            verified.same[what] = same
            verified.differences += different

    def _through(self) -> int:
        """The arrival time up to which job `alert` certainly has all it waits for."""
        newest = self._ask("SELECT max(started_at) FROM ops.ledger WHERE job = 'alert'")[0][0]
        if newest is None:
            return 0
        jobs = self._settings.jobs
        # The join holds a row until both of its inputs' watermarks are past it.
        waits = timedelta(seconds=jobs.wait_seconds + 2 * jobs.watermark_seconds)
        return micros(min(newest, self._complete()) - waits - _SLACK)

    def _correlations(self, begin: datetime, end: datetime) -> list[dict[str, Any]]:
        answer = self._duck.execute(
            "SELECT *, finding_id IN (SELECT finding_id FROM gold.attribution "
            "WHERE via IN ('correction', 'disproved')) AS moved "
            "FROM gold.finding WHERE kind NOT IN ('event', 'model') AND rule_id <> $beat "
            "AND event_time >= $begin AND event_time < $end",
            {"beat": HEARTBEAT, "begin": begin, "end": end},
        )
        return _rows(answer)

    def _actions(self, begin: datetime, end: datetime) -> Iterator[dict[str, Any]]:
        """What people asked: of alerts within the span, and of suppressions ever."""
        answer = self._duck.execute(_ACTIONS, {"begin": begin, "end": end})
        for row in _rows(answer):
            fields = dict(row.get("fields") or {})
            yield row | {"row_kind": "action", "available_at": row["at"], "fields": fields}

    def _recorded(self, begin: datetime, end: datetime) -> list[ComparedAlert]:
        rows = self._ask(_ALERTS, begin=begin, end=end)
        return [_alert(row) for row in rows]


def _alert(row: Sequence[Any]) -> ComparedAlert:
    alert_id, rule_id, dedup, entity, first, last, raised, received, count, moved = row[:10]
    text, revision = row[10:]
    body = readable_body(text)
    require_whole(body, alert_id, revision)
    return ComparedAlert(
        id=alert_id,
        rule_id=rule_id,
        key=dedup.partition("|")[2],
        entity=entity,
        first=micros(first),
        last=micros(last),
        raised=micros(raised),
        received=micros(received),
        count=int(count),
        moved=bool(moved),
        evidence=tuple(evidence_row["event_uid"] for evidence_row in body["evidence"]),
    )


def _correlated(row: Mapping[str, Any]) -> ComparedAlert:
    """A correlation's finding; its group is among the values it shows."""
    fields = dict(row.get("fields") or {})
    holder = row.get("holder") or {}
    entity = holder.get("mac") or row.get("ip") or row.get("host_name") or row.get("user_name")
    first = row.get("window_start") or row["event_time"]
    return ComparedAlert(
        id=row["finding_id"],
        rule_id=row["rule_id"],
        key=str(entity),
        entity=str(entity),
        first=micros(first),
        last=micros(row["event_time"]),
        raised=micros(row["event_time"]),
        received=micros(row["received_at"]),
        count=int(row.get("evidence_total") or 0) if row["rule_id"] != INCIDENT else 0,
        late=fields.get("late") == "true",
        moved=bool(row.get("moved")),
        evidence=tuple(evidence_row["event_uid"] for evidence_row in row.get("evidence") or ()),
    )


def _rows(answer: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    names = [column[0] for column in answer.description or ()]
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]


def _available(row: Mapping[str, Any]) -> int:
    return micros(row["available_at"])


def differences(verified: Verified) -> list[Difference]:
    """All differences, those without a cause first, then by time."""
    return sorted(
        verified.differences, key=lambda one: (one.cause != "unexplained", one.at, one.id)
    )
