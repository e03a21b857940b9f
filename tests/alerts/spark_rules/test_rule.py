"""Rules in Spark SQL and as functions: one object in notebook, backtest and live job."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from alerts.backtest.history_match import EventHistory
from alerts.cli import __main__
from alerts.compiler.compiler import Compiled, compile_rules
from alerts.compiler.required_inputs import required_inputs
from alerts.compiler.sigma_to_predicate import Untranslatable
from alerts.coverage.field_baseline import leaves_of
from alerts.domain.entity import micros
from alerts.domain.finding import RULE_FAILED, identity
from alerts.matching.detection import detect
from alerts.rulebook.rule_store import rule_store
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import PackStore, Query, RulePack
from alerts.spark_rules.cost import QueryCost
from alerts.spark_rules.disabled_rules import DisabledRules
from alerts.spark_rules.live import Queries
from alerts.spark_rules.notebook import rule_from, sql_rule
from alerts.spark_rules.rule import QueryRule
from alerts.spark_rules.windows import Touched, window_spans
from alerts.tables import FINDING
from alerts.verify.differences import Batches, OneSidedFinding, judge_finding
from infra.config.settings import Settings, load
from infra.delta.schema import Table
from infra.errors import Usage
from infra.streaming.batch import Batch
from infra.streaming.job import Job
from infra.streaming.lake import Lake
from ingest.parsing.source import ParseSettings
from ingest.pipeline.batch_pass import Reach
from ingest.pipeline.ingest_job import through
from ingest.tables import EVENT, RECORD
from tests.alerts.history import IP, Row, at, login
from tests.api.story import insert

ROOT = "22222222-0000-4000-8000-000000000001"
MANY = "22222222-0000-4000-8000-000000000002"

ALONE = f"""
title: Root refused
name: root_refused
id: {ROOT}
type: sql
level: high
query: |
  SELECT event_uid, upper(user_name) AS who
  FROM event WHERE status_id = 2 AND user_name = 'root'  -- one event by itself
"""
WINDOWED = f"""
title: Many refused
name: many_refused
id: {MANY}
type: sql
level: high
window: 10m
slide: 5m
group-by: [scope, src_ip]
query: |
  WITH refused AS (SELECT * FROM event WHERE status_id = 2)
  SELECT window, scope, src_ip, count(*) AS refused, min(time) AS time,
         slice(collect_list(struct(event_uid, time, message)), 1, 10) AS evidence
  FROM refused GROUP BY window(time, '10 minutes', '5 minutes'), scope, src_ip
  HAVING count(*) >= 3
"""
FUNCTION = f'''"""
title: Many refused, as a function
name: many_refused_function
id: {MANY}
level: high
window: 10m
slide: 5m
group-by: [scope, src_ip]
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

LEAST = 3


def rule(events: DataFrame) -> DataFrame:
    named = F.udf(lambda ip: f"from {{ip}}, {{LEAST}} or more")  # goes to a worker with its module
    groups = events.where("status_id = 2").groupBy(
        F.window("time", "10 minutes", "5 minutes"), "scope", "src_ip"
    )
    counted = groups.agg(F.count("*").alias("refused"), F.min("time").alias("time"))
    return counted.where(F.col("refused") >= LEAST).withColumn("told", named("src_ip"))
'''


def compiled(folder: Path, text: str, name: str = "rule.yml") -> Compiled:
    """What becomes of one rule's file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, "utf-8")
    return compile_rules([folder / name])


def query(folder: Path, text: str, name: str = "rule.yml") -> Query:
    """The query in a rule's file."""
    found = compiled(folder, text, name)
    assert not found.refused
    (one,) = found.pack.queries
    return one


# -- what may be a rule --------------------------------------------------------------------------


def test_a_file_says_all_that_a_sigma_rule_says(tmp_path: Path) -> None:
    text = ALONE + "tags: [attack.initial-access, attack.t1078]\nfalsepositives: [new machines]\n"
    one = query(tmp_path, text)
    assert (one.id, one.name, one.level, one.alerting) == (ROOT, "root_refused", "high", True)
    assert one.techniques == ("T1078",)
    assert one.falsepositives == ("new machines",)
    assert one.version
    windowed = query(tmp_path, WINDOWED)
    assert (windowed.window_seconds, windowed.slide_seconds) == (600, 300)
    assert query(tmp_path, FUNCTION, "rule.py").type == "function"


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ("query: DROP TABLE silver.event", "its query is DROP"),
        ("query: INSERT INTO event SELECT * FROM event", "its query is INSERT"),
        ("query: SELECT 1; SELECT 2", "2 statements"),
        ("query: SELECT event_uid FROM silver.alert", "reads silver.alert"),
        ("query: SELECT * FROM text.`/etc/passwd`", "it reads text"),
        ("query: SELECT * FROM read_files('/etc')", "it reads"),
        ("query: SELECT event_uid FROM event WHERE ip IN (SELECT ip FROM gold.alert)", "gold"),
        ("query: SELECT TRANSFORM(event_uid) USING 'sh' AS (x) FROM event", "TRANSFORM in a rule"),
        ("query: SELECT FROM WHERE", "not Spark SQL"),
        ("", "it has no query"),
        ("query: SELECT event_uid FROM event\nwindow: soon", "window: 'soon'"),
        ("query: SELECT event_uid FROM event\nwindow: 10m", "a window without group-by"),
        ("query: SELECT event_uid FROM event\nslide: 10m", "without a window"),
        ("query: SELECT 1\nwindow: 10m\nslide: 7m\ngroup-by: [a]", "slide: 7m"),
        ("query: SELECT event_uid FROM event\ndetection: {}", "`detection` in a rule"),
    ],
)
def test_what_is_no_question_over_events_is_refused_by_name(
    tmp_path: Path, asked: str, reason: str
) -> None:
    text = f"title: Bad\nid: {ROOT}\ntype: sql\n{asked}\n"
    found = compiled(tmp_path, text)
    (refused,) = found.refused
    assert refused.rule == ROOT
    assert reason in refused.reason
    assert refused.remedy
    assert not found.pack.queries


def test_a_function_comes_in_by_a_person_not_by_a_yaml_file(tmp_path: Path) -> None:
    text = f"title: Bad\nid: {ROOT}\ntype: function\nquery: 'def rule(events): return events'\n"
    (refused,) = compiled(tmp_path, text).refused
    assert "headgate rules import" in refused.remedy
    lost = FUNCTION.replace("def rule", "def other")
    (refused,) = compiled(tmp_path, lost, "rule.py").refused
    assert "no function rule" in refused.reason


def test_the_examples_of_the_page_are_rules(tmp_path: Path) -> None:
    guides = Path(__file__).parents[3] / "docs" / "how-to"
    page = (guides / "write-a-rule-in-sql.md").read_text("utf-8")
    sql, window = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    page = (guides / "write-a-rule-in-python.md").read_text("utf-8")
    function = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    assert query(tmp_path, sql).type == "sql"
    assert query(tmp_path, window).window_seconds == 600
    assert query(tmp_path, function, "rule.py").type == "function"


def test_packs_without_queries_keep_the_hash_they_had() -> None:
    assert b"queries" not in RulePack().to_json()
    one = RulePack(queries=(Query(id="q", title="", type="sql", text="SELECT 1"),))
    assert RulePack.from_json(one.to_json()) == one


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT event_uid, nosuch FROM event", "`nosuch` cannot be resolved"),
        ("SELECT src_ip FROM event", "does not select event_uid"),
        ("SELECT max(event_uid) AS event_uid FROM event GROUP BY src_ip", "an aggregate"),
        ("SELECT event_uid FROM event LIMIT 5", "LIMIT"),
        ("SELECT a.event_uid FROM event a JOIN event b ON a.src_ip = b.src_ip", "a join"),
        ("SELECT event_uid, lag(time) OVER (ORDER BY time) AS l FROM event", "OVER other rows"),
        ("SELECT event_uid FROM event WHERE src_ip IN (SELECT dst_ip FROM event)", "a subquery"),
        ("SELECT event_uid FROM event WHERE time > now() - INTERVAL 1 HOUR", "it asks now"),
        ("SELECT event_uid FROM event WHERE rand() < 0.5", "another one each time"),
        ("SELECT event_uid, reflect('java.lang.System', 'getenv', 'HOME') h FROM event", "reflect"),
        ("SELECT event_uid, current_user() AS u FROM event", "it asks"),
    ],
)
def test_what_spark_cannot_run_on_single_events_is_refused_in_a_sentence(
    spark: SparkSession, text: str, reason: str
) -> None:
    with pytest.raises(Untranslatable, match=reason.replace("(", r"\(")) as refused:
        QueryRule(Query(id="q", title="", type="sql", text=text)).check(spark)
    assert "\n" not in str(refused.value)
    assert refused.value.remedy


@pytest.mark.parametrize(
    ("select", "reason"),
    [
        ("scope FROM event", "does not select window"),
        ("src_ip, count(*) AS n FROM event GROUP BY src_ip", "over all windows"),
        (
            "window, src_ip, count(*) AS n FROM event GROUP BY window(time, '10 minutes'), src_ip",
            "without `scope`",
        ),
        (
            "window, scope, count(*) AS n, count(*) AS n FROM event "
            "GROUP BY window(time, '10 minutes'), scope",
            "are called n",
        ),
    ],
)
def test_windows_are_whole_and_told_apart(spark: SparkSession, select: str, reason: str) -> None:
    one = Query(
        id="q", title="", type="sql", text=f"SELECT {select}", window_seconds=600,
        slide_seconds=600, group_by=("window",),
    )  # fmt: skip
    with pytest.raises(Untranslatable, match=reason):
        QueryRule(one).check(spark)


# -- what it finds -------------------------------------------------------------------------------


def test_a_finding_of_an_event_is_as_sigma_makes_it(spark: SparkSession, tmp_path: Path) -> None:
    one = query(tmp_path, ALONE)
    rule = QueryRule(one, "pack")
    rule.check(spark)
    rows = [login("a", 0), login("b", 1, user="ann"), login("c", 2, dead_letter_reason="no")]
    events = spark.createDataFrame(rows, EVENT.schema)
    (row,) = rule.findings(events).collect()
    assert row["finding_id"] == identity(ROOT, "a")
    assert (row["event_uid"], row["role"], row["ip"]) == ("a", "src_endpoint", IP)
    assert row["fields"] == {"who": "ROOT"}
    assert row["snippet"] == "Failed password for root"
    assert (row["rule_version"], row["pack"], row["alerting"]) == (one.version, "pack", True)
    assert rule.findings(events, modes=("import",)).count() == 0


@pytest.mark.full
def test_a_query_of_all_columns_shows_what_it_adds(spark: SparkSession) -> None:
    text = "SELECT *, length(user_name) AS letters FROM event"
    rule = QueryRule(Query(id="q", title="", type="sql", text=text))
    rule.check(spark)
    (row,) = rule.findings(spark.createDataFrame([login("a", 0)], EVENT.schema)).collect()
    assert row["fields"] == {"letters": "4"}


@pytest.mark.full
def test_windows_of_another_length_than_said_fail(spark: SparkSession, tmp_path: Path) -> None:
    rule = QueryRule(query(tmp_path, WINDOWED.replace("'10 minutes', '5 minutes'", "'1 hour'")))
    rule.check(spark)
    rows = [login(str(n), n) for n in range(3)]
    with pytest.raises(Exception, match="its windows are not of 600 s"):
        rule.findings(spark.createDataFrame(rows, EVENT.schema)).collect()


@given(
    st.sets(st.integers(0, 5_000), min_size=1, max_size=60),
    st.sampled_from([(60, 60), (600, 300), (900, 100)]),
    st.integers(1, 5),
)
def test_spans_hold_every_window_of_every_event_whole(
    seconds: set[int], sizes: tuple[int, int], most: int
) -> None:
    window, slide = sizes
    one = Query(id="q", title="", type="sql", text="", window_seconds=window, slide_seconds=slide)
    slots = frozenset(second // slide for second in seconds)
    found = Touched(slots, slide * 1_000_000, at(0)).starts(one)
    begins = {
        b for s in seconds for b in range(-window, s + 1) if b % slide == 0 and s < b + window
    }
    assert found == {begin * 1_000_000 for begin in begins}
    merged = window_spans(found, window * 1_000_000, most)
    assert len(merged) <= most
    assert all(earlier[1] < later[0] for earlier, later in pairwise(merged))
    for begin in found:
        end = begin + window * 1_000_000
        assert any(since <= begin and end <= until for since, until in merged)


# -- live ----------------------------------------------------------------------------------------


class Line:
    """Batches of job ingest, as far as queries are concerned, on a real lake."""

    def __init__(self, lake: Lake, *queries: Query) -> None:
        self.lake = lake
        self.store = PackStore(store_folder(lake.settings))
        self.pack = self.store.put(RulePack(queries=queries))
        self.live = Queries(lake, self.store)
        self.number = 0

    def feed(self, rows: Sequence[Row]) -> Batch:
        """One batch: its events are in, then the queries run and their findings are."""
        insert(self.lake, EVENT, rows)
        run = self.batch(len(rows))
        self.lake.commit(FINDING, run, self.live(run, self.pack))
        self.number += 1
        return run

    def batch(self, rows: int) -> Batch:
        """The batch that is being worked on, its events committed."""
        return Batch(
            job="ingest", query_id="q", batch_id=self.number, digest=str(self.number),
            folder=self.lake.settings.checkpoint_root / "ingest", look_back=False,
            started_at=datetime.now(UTC), offsets="",
            versions={EVENT.name: self.lake.version(EVENT)}, counts={"read": rows},
        ).load()  # fmt: skip

    def told(self) -> list[dict[str, Any]]:
        """Rows of gold.finding."""
        return [row.asDict(recursive=True) for row in self.lake.read(FINDING).collect()]


@pytest.fixture
def always(settings: Settings) -> Settings:
    """Windows are looked at in every batch, and a busy machine sets no rule aside."""
    return load(home=settings.home, alerts={"window_seconds": 0, "query_seconds": 600})


def backtested(lake: Lake, store: PackStore, pack: str) -> dict[str, dict[str, Any]]:
    """What a backtest finds over all of history, by finding id."""
    parts = EventHistory(lake).parts(at(-7200), at(7200), str(store.folder), [store.get(pack)])
    queried = [made() for title, made in parts if title]
    rows = [row.asDict(recursive=True) for found in queried for row in found.collect()]
    assert len({row["finding_id"] for row in rows}) == len(rows)
    return {row["finding_id"]: row for row in rows}


EVENTS = [
    *[login(f"a{n}", 60 * n) for n in range(4)],
    login("b0", 100, ip="10.0.0.2"),
    login("b1", 700, ip="10.0.0.2", user="ann"),
    login("b2", 710, ip="10.0.0.2", user="ann"),
]
LATE = [login("b3", 690, ip="10.0.0.2", user="ann"), login("c0", -3000)]


@pytest.mark.full
def test_notebook_backtest_and_live_batches_find_the_same(
    spark: SparkSession, always: Settings, tmp_path: Path
) -> None:
    function = query(tmp_path, FUNCTION.replace(MANY, MANY[:-1] + "3"), "rule.py")
    queries = (query(tmp_path, ALONE), query(tmp_path, WINDOWED), function)
    line = Line(Lake(spark, always), *queries)
    for rows in (EVENTS[:3], EVENTS[3:6], [*EVENTS[6:], *LATE]):
        line.feed(rows)
    told = line.told()
    assert len({row["finding_id"] for row in told}) == len(told)
    history = backtested(line.lake, line.store, line.pack)
    events = spark.createDataFrame([*EVENTS, *LATE], EVENT.schema)
    notebook = [QueryRule(one, line.pack).findings(events).collect() for one in queries]
    assert {row["finding_id"] for rows in notebook for row in rows} == set(history)
    assert {row["finding_id"] for row in told} == set(history)
    by_rule = {one.id: [r for r in told if r["rule_id"] == one.id] for one in queries}
    assert {row["event_uid"] for row in by_rule[ROOT]} == {"a0", "a1", "a2", "a3", "b0", "c0"}
    # Windows of five minutes' step: noon - 5 min and noon hold a0..; noon + 5 and + 10 min b1..b3.
    starts = {(row["ip"], micros(row["window_start"])) for row in by_rule[MANY]}
    assert starts == {
        (IP, micros(at(-300))), (IP, micros(at(0))),
        ("10.0.0.2", micros(at(300))), ("10.0.0.2", micros(at(600))),
    }  # fmt: skip
    assert len(by_rule[function.id]) == 4
    same = ("rule_id", "rule_version", "event_uid", "event_time", "window_start", "ip", "role")
    for row in told:
        assert [row[name] for name in same] == [history[row["finding_id"]][name] for name in same]
    (first,) = [r for r in by_rule[MANY] if micros(r["window_start"]) == micros(at(0))]
    assert [one["event_uid"] for one in first["evidence"]] == ["a0", "a1", "a2"]
    assert first["fields"]["refused"] == "3"


@pytest.mark.full
def test_windows_wait_for_their_time_and_go_on_after_a_restart(
    spark: SparkSession, settings: Settings, always: Settings, tmp_path: Path
) -> None:
    patient = load(home=settings.home, alerts={"window_seconds": 3600, "query_seconds": 600})
    line = Line(Lake(spark, patient), query(tmp_path, WINDOWED))
    line.feed(EVENTS[:2])
    line.feed(EVENTS[2:4])  # too early to look again
    assert line.told() == []
    line.live = Queries(Lake(spark, always), line.store)
    line.feed([login("z", 5000)])
    assert {row["ip"] for row in line.told()} == {IP}


@pytest.mark.full
def test_a_batch_that_runs_again_writes_the_same(
    spark: SparkSession, always: Settings, tmp_path: Path
) -> None:
    line = Line(Lake(spark, always), query(tmp_path, ALONE), query(tmp_path, WINDOWED))
    insert(line.lake, EVENT, EVENTS)
    run = line.batch(len(EVENTS))
    first = sum(file.rows for file in line.live(run, line.pack))
    again = Queries(line.lake, line.store)
    assert sum(file.rows for file in again(line.batch(len(EVENTS)), line.pack)) == first > 0


@pytest.mark.full
def test_a_rule_that_fails_is_set_aside_alone_with_a_finding_of_its_own(
    spark: SparkSession, always: Settings, tmp_path: Path
) -> None:
    broken = Query(
        id="broken", title="Broken", version="1", type="sql",
        text="SELECT event_uid, 1 / (status_id - 2) AS x FROM event",
    )  # fmt: skip
    unknown = Query(id="unknown", title="U", version="1", type="sql", text="SELECT no FROM event")
    line = Line(Lake(spark, always), query(tmp_path, ALONE), broken, unknown)
    line.feed(EVENTS[:1])
    failed = {r["fields"]["rule_id"]: r for r in line.told() if r["rule_id"] == RULE_FAILED}
    assert "Division by zero" in failed["broken"]["fields"]["error"]
    assert "`no` cannot be resolved" in failed["unknown"]["fields"]["error"]
    assert all(row["alerting"] for row in failed.values())
    line.feed(EVENTS[1:2])
    told = [row["rule_id"] for row in line.told()]
    assert (told.count(ROOT), told.count(RULE_FAILED)) == (2, 2)
    aside = DisabledRules(line.store.folder)
    assert set(aside.all()) == {"broken", "unknown"}
    assert aside.lift("broken")
    assert aside.why(broken) is None


@pytest.mark.full
def test_a_rule_over_its_budget_of_time_or_rows_is_set_aside(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    slow = f'''"""
title: Slow
id: {MANY}
"""
import time
from pyspark.sql import functions as F


def rule(events):
    wait = F.udf(lambda uid: time.sleep(20) or uid)
    return events.select(wait("event_uid").alias("event_uid"))
'''
    tight = load(home=settings.home, alerts={"query_seconds": 3, "query_rows": 1})
    wide = query(tmp_path, ALONE)
    line = Line(Lake(spark, tight), query(tmp_path, slow, "slow.py"), wide)
    line.feed(EVENTS[:2])
    reasons = {row["fields"]["rule_id"]: row["fields"]["error"] for row in line.told()}
    assert "took longer than 3 s" in reasons[MANY]
    assert "more than 1 rows" in reasons[ROOT]


LOOKS = f'''"""
title: Looks
id: {MANY}
"""
from pyspark.sql import functions as F


def rule(events):
    named = events.where(F.lower("user.name").like("adm%")).withColumn("class_uid", F.lit(1))
    named = named.where("class_uid = 1 AND src_endpoint.port > 1024")
    other = events.where((F.col("class_uid") == 3002) & F.col("src_ip").isNotNull())
    return named.unionByName(other.withColumn("class_uid", F.lit(1))).select("event_uid")
'''


def test_what_a_function_asks_of_events_is_read_from_sparks_plan(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A column that the function made itself is no field of the event."""
    asked = QueryRule(query(tmp_path, LOOKS, "looks.py"))
    named, other = required_inputs(
        msgspec.structs.replace(asked.query, sees=tuple(asked.sees(spark)))
    )
    assert (named.classes, other.classes) == ((), (3002,))
    assert named.predicate is not None
    assert other.predicate is not None
    assert leaves_of(named.predicate) == {"user.name", "src_endpoint.port"}
    assert leaves_of(other.predicate) == {"class_uid", "src_ip"}


def test_without_queries_nothing_is_done(spark: SparkSession, settings: Settings) -> None:
    line = Line(Lake(spark, settings))
    run = line.batch(1)
    assert line.live(run, line.pack) == []
    assert run.decisions == {}


def test_what_queries_cost_is_told_once_a_minute(tmp_path: Path) -> None:
    now = 0.0
    spend = QueryCost(tmp_path, lambda: now)
    spend.note("pack", "q", 2, 0.5)
    assert list(tmp_path.iterdir()) == []
    now = 60.0
    spend.note("pack", "q", 1, 0.25)
    (file,) = tmp_path.iterdir()
    row = json.loads(file.read_text("utf-8"))
    assert row["rules"] == {"q": {"events": 0, "candidates": 0, "hits": 3, "us": 750_000}}
    assert (row["pack"], row["seconds"], row["match_us"]) == ("pack", 60.0, 750_000)


@pytest.mark.parametrize(
    ("batches", "cause"),
    [
        (Batches({("ingest", 1): "p"}, failed={("q", "p")}), "rule failed"),
        (Batches({("ingest", 1): "p", ("ingest", 2): "o"}), "rule changed"),
        (Batches({("ingest", 1): "p"}), "unexplained"),
    ],
)
def test_verify_names_why_a_window_was_not_told(batches: Batches, cause: str) -> None:
    missing = OneSidedFinding("f", "q", "no event", 0, None, ("p",))
    judged = judge_finding(missing, None, batches)
    assert judged is not None
    assert (judged.how, judged.cause) == ("missing", cause)


# -- the job, and the command --------------------------------------------------------------------

INBOX = Table("bronze.inbox", "records that arrive", RECORD.columns)
CALL = """{"eventVersion": "1.08", "eventID": "%s", "eventTime": "2026-11-21T03:00:00Z",
"eventName": "GetUser", "eventSource": "iam.amazonaws.com", "awsRegion": "eu-west-1",
"sourceIPAddress": "203.0.113.9", "userIdentity": {"type": "IAMUser", "userName": "mallory"}}"""
CLOUD = f"""
title: Mallory asks
name: mallory
id: {ROOT}
type: sql
query: SELECT event_uid, api.operation FROM event WHERE user_name = 'mallory'
"""


def deliver(lake: Lake, store: PackStore, *uids: str) -> Job:
    """One batch of job ingest, of CloudTrail records with these ids."""
    rows = [
        (uid, "aws_cloudtrail", "live", at(0), None, None, None, (CALL % uid).encode(), None, None)
        for uid in uids
    ]
    frame = lake.spark.createDataFrame(rows, RECORD.schema)
    frame.write.format("delta").mode("append").save(lake.path(INBOX))
    parsing, steps = ParseSettings.of(lake.settings), [detect(lake, store)]

    def batch(arrived: DataFrame, run: Batch) -> None:
        through(lake, arrived.coalesce(1), parsing, Reach(), [step(run) for step in steps], run)

    return lake.each_batch("ingest", lake.stream(INBOX), batch, trigger_seconds=None)


def run(settings: Settings, *words: str) -> int:
    parser = argparse.ArgumentParser()
    __main__.build(parser.add_subparsers())
    args = parser.parse_args(["rules", *words])
    code: int = args.run(args, settings)
    return code


@pytest.mark.full
def test_sql_goes_live_at_the_next_batch_and_survives_a_crash_between_two_commits(
    spark: SparkSession,
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "other.yml").write_text(WINDOWED, "utf-8")
    ours = load(home=settings.home, alerts={"bundled": False, "rules": (folder,)})
    lake = Lake(spark, ours).ensure(INBOX)
    store = rule_store(ours)
    deliver(lake, store, "a").wait()
    (folder / "cloud.yml").write_text(CLOUD, "utf-8")
    assert run(ours, "enable", "mallory") == 0
    commit = Lake.commit

    def dies(self: Lake, table: Table, batch: Batch, files: Sequence[Any]) -> None:
        if table is FINDING:
            raise RuntimeError("killed")
        commit(self, table, batch, files)

    monkeypatch.setattr(Lake, "commit", dies)
    with pytest.raises(Exception, match="killed"):
        deliver(lake, store, "b").wait()
    monkeypatch.undo()
    deliver(lake, store, "c").wait()
    told = [(row["event_uid"], row["fields"]) for row in lake.read(FINDING).collect()]
    assert sorted(uid for uid, _ in told) == ["b#0", "c#0"]
    assert told[0][1] == {"operation": "GetUser"}

    assert run(ours, "preview", "mallory", "--since", "2026-11-20T00:00:00Z") == 0
    shown = capsys.readouterr()
    assert "203.0.113.9" in shown.out
    assert "3 findings in" in shown.err


@pytest.mark.full
def test_a_function_is_let_in_by_import_and_set_aside_rules_are_told(
    spark: SparkSession, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(__file__).parents[3] / "samples" / "rules"
    ours = load(home=settings.home, alerts={"bundled": False, "rules": (folder,)})
    assert run(ours, "import", str(folder / "names_like_noise.py")) == 0
    assert "passed 2 tests" in capsys.readouterr().err
    assert run(ours, "test") == 0  # the examples' own tests
    store = PackStore(store_folder(ours))
    kinds = {one.name: one.type for one in store.get(store.current()).queries}
    assert kinds == {
        "many_addresses_for_one_name": "sql",
        "names_like_noise": "function",
        "spraying_that_worked": "sql",
    }
    noise = next(q for q in store.get(store.current()).queries if q.type == "function")
    (needed,) = required_inputs(noise)
    assert needed.classes == (4003,)
    DisabledRules(store.folder).put([noise], {noise.id: "it took longer than 10 s"})
    capsys.readouterr()
    assert run(ours, "list") == 0
    assert "set aside: it took longer than 10 s" in capsys.readouterr().out
    assert run(ours, "enable", "names_like_noise") == 0
    assert DisabledRules(store.folder).all() == {}
    bad = settings.home / "bad.py"
    bad.write_text((folder / "names_like_noise.py").read_text("utf-8").replace(">= NAMES", ">= 99"))
    with pytest.raises(Usage, match="test 1 of 2 fails: it did not match"):
        run(ours, "import", str(bad))


@pytest.mark.full
def test_a_notebook_has_drafts(spark: SparkSession) -> None:
    draft = sql_rule("SELECT event_uid FROM event WHERE user_name = 'root'")
    draft.check(spark)
    events = spark.createDataFrame([login("a", 0), login("b", 1, user="ann")], EVENT.schema)
    assert [row["event_uid"] for row in draft.findings(events).collect()] == ["a"]
    assert rule_from(Path(__file__).parents[3] / "samples/rules/spraying_that_worked.yml")
    with pytest.raises(Untranslatable, match="its query is DROP"):
        sql_rule("DROP TABLE event")
