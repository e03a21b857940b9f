"""The replay: what is sent when, and the bundled story."""

from __future__ import annotations

import argparse
import gzip
import tomllib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from confluent_kafka import Consumer
from hypothesis import given
from hypothesis import strategies as st

from alerts.compiler.compiler import compile_rules
from alerts.matching.event_rows import brute_force
from alerts.rulepack.locations import rule_folders
from enrich.dhcp import lease_rules
from infra.config.settings import Settings, load
from infra.errors import Retryable, Usage
from infra.kafka.client import Broker
from ingest.parsing.event_rows import event_rows
from ingest.parsing.source import Context, Event, ParseSettings, Record, Unreadable, lookup
from ingest.replay.replay import build, fire, run
from ingest.replay.schedule import Plan, ReplayInput, Shot, load_plan, plan_of_files, schedule

STORY = Path(__file__).parents[3] / "samples" / "demo"
EXPECTED = tomllib.loads((STORY / "expected.toml").read_text("utf-8"))
START = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
SETTINGS = load(STORY / "headgate.toml")
ALERTING = ("medium", "high", "critical")


@dataclass
class Clock:
    """Time passes only when somebody waits."""

    time: datetime = START

    def now(self) -> datetime:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


@dataclass
class Topic:
    """Remembers what was produced, and when."""

    clock: Clock
    taken: list[tuple[datetime, str, bytes, dict[str, bytes]]] = field(default_factory=list)

    def __call__(self, topic: str, raw: bytes, headers: list[tuple[str, bytes]]) -> None:
        self.taken.append((self.clock.time, topic, raw, dict(headers)))


@pytest.fixture(scope="module")
def plan() -> Plan:
    return load_plan(STORY / "plan.toml")


@pytest.fixture(scope="module")
def shots(plan: Plan) -> list[Shot]:
    return schedule(plan)


def story(shots: list[Shot], name: str) -> list[Shot]:
    return [shot for shot in shots if Path(shot.origin.rsplit(" line ", 1)[0]) == STORY / name]


def parse(source: str, raw: bytes, received: datetime, headers: dict[str, bytes]) -> list[Event]:
    record = Record("r", source, "live", received, raw, headers)
    return lookup(source).parse(record, Context(record, ParseSettings.of(SETTINGS)))


def is_dead(source: str, raw: bytes, received: datetime, headers: dict[str, bytes]) -> bool:
    try:
        events = parse(source, raw, received, headers)
    except Unreadable:
        return True
    return any(event.get("dead_letter_reason") for event in events)


def sshd(second: int, text: str = "Server listening on 0.0.0.0 port 22.") -> bytes:
    return f"<86>1 2026-03-02T09:00:{second:02d}.250000+00:00 b1 sshd 1 - - {text}".encode()


def shot(at: float, **changes: Any) -> Shot:
    return replace(Shot(at, at, "sshd", sshd(0), zone="UTC", origin="f line 1"), **changes)


# -- schedule


def test_a_schedule_is_sorted_and_the_same_each_time(plan: Plan, shots: list[Shot]) -> None:
    assert shots == sorted(shots, key=lambda each: each.at)
    assert schedule(plan) == shots
    assert all(each.at >= 0 for each in shots)


@given(speed=st.floats(0.01, 1000))
def test_speed_divides_the_gaps(speed: float) -> None:
    late = load_plan(STORY / "plan.toml")
    late = Plan(input=tuple(each for each in late.input if "late" in each.file))
    slow, quick = schedule(late, 1.0), schedule(late, speed)
    assert [each.at / speed for each in slow] == pytest.approx([each.at for each in quick])
    assert [each.event_at / speed for each in slow] == pytest.approx(
        [each.event_at for each in quick]
    )


def test_infinite_speed_sends_everything_at_once(plan: Plan) -> None:
    assert {each.at for each in schedule(plan, float("inf"))} == {0.0}


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan")])
def test_a_speed_that_is_none_is_refused(plan: Plan, speed: float) -> None:
    with pytest.raises(Usage, match="must be above 0"):
        schedule(plan, speed)


def test_files_keep_the_gaps_of_their_own_times(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"\n".join([sshd(10), sshd(12), b"", sshd(11)]) + b"\r\n")
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(sshd(20) + b"\nno time\n"))
    made = plan_of_files([tmp_path / "a.log", tmp_path / "b.log.gz"], "sshd", "UTC")
    assert [(each.at, each.raw) for each in schedule(made, 2)] == [
        (0.0, sshd(10)),
        (0.5, sshd(11)),
        (1.0, sshd(12)),
        (5.0, sshd(20)),
        (5.0, b"no time"),
    ]


def test_header_lines_travel_with_the_lines_they_name(tmp_path: Path) -> None:
    header = [
        b"#separator \\x09",
        b"#set_separator\t,",
        b"#empty_field\t(empty)",
        b"#unset_field\t-",
        b"#path\tdns",
        b"#fields\tts\tuid\tid.orig_h\tid.orig_p\tid.resp_h\tid.resp_p\tquery",
        b"#types\ttime\tstring\taddr\tport\taddr\tport\tstring",
    ]
    lines = [
        b"%d.5\tC%d\t10.0.0.1\t40000\t10.0.0.2\t53\texample.org" % (1776500000 + at, at)
        for at in range(3)
    ]
    (tmp_path / "dns.log").write_bytes(b"\n".join([*header, *lines, b""]))
    shots = schedule(plan_of_files([tmp_path / "dns.log"], "zeek:dns"))
    assert [each.raw for each in shots] == lines
    assert [each.at for each in shots] == [0.0, 1.0, 2.0]
    for each in shots:
        headers = dict(each.headers)
        assert headers["header"] == b"\n".join(header)
        (event,) = parse("zeek:dns", each.raw, START, headers)
        assert event["query"]["hostname"] == "example.org"


def test_an_absurd_time_does_not_stretch_the_replay(tmp_path: Path) -> None:
    absurd = sshd(11).replace(b"2026", b"9998")
    (tmp_path / "a.log").write_bytes(b"\n".join([sshd(10), absurd, sshd(12)]))
    made = plan_of_files([tmp_path / "a.log"], "sshd", "UTC")
    assert [each.at for each in schedule(made)] == [0.0, 0.0, 2.0]


def test_a_pretty_printed_file_of_one_record_is_one_message(tmp_path: Path) -> None:
    pretty = b'{\n "Records": [\n {"eventTime": "2026-03-02T09:00:00Z"}\n ]\n}\n'
    (tmp_path / "trail.json").write_bytes(pretty)
    made = plan_of_files([tmp_path / "trail.json"], "aws_cloudtrail", None)
    assert [each.raw for each in schedule(made)] == [pretty]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[input]]\nfile = "gone.log"\nsource = "sshd"', "no such file"),
        ('[[input]]\nfile = "plan.toml"\nsource = "nobody"', "no source 'nobody'"),
        ('[[input]]\nfile = "plan.toml"\nsource = "sshd"\nsqueeze = 0', "squeeze"),
        ('[[input]]\nfile = "plan.toml"\nsource = "sshd"\nzone = "Mars/X"', "no time zone"),
        ('[[input]]\nfile = "plan.toml"\nsource = "sshd"\nspeeed = 2', "speeed"),
        ("[[input]\n", "not a replay plan"),
    ],
)
def test_a_wrong_plan_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "plan.toml").write_text(text)
    with pytest.raises(Usage, match=said):
        load_plan(tmp_path / "plan.toml")


# -- sending


def test_each_line_is_sent_at_its_time_and_carries_it(shots: list[Shot]) -> None:
    clock = Clock(START - timedelta(milliseconds=300))
    topic = Topic(clock)
    live = [each for each in shots if not each.as_is]
    sent = fire(live, topic, clock, SETTINGS)
    assert sent.total == len(live) == len(topic.taken)
    for each, (at, name, raw, headers) in zip(live, topic.taken, strict=True):
        assert name == "logs." + each.source.replace(":", ".")
        assert abs((at - START).total_seconds() - each.at) < 0.001
        carried = earliest(each.source, raw, at, headers)
        if carried is not None:
            meant = START + timedelta(seconds=each.event_at)
            assert abs(meant - carried) < timedelta(seconds=1), each.origin


def earliest(
    source: str, raw: bytes, received: datetime, headers: dict[str, bytes]
) -> datetime | None:
    """Time of a record with one event; a file of many keeps its own gaps."""
    events = parse(source, raw, received, headers)
    timed = [each["time"] for each in events if each.get("time_quality") != "received"]
    return timed[0] if len(timed) == 1 else None


#    second   38 40                     70
#              r  a  .......stalled......  |   the lines carry 38 and 40
def test_late_lines_keep_their_time(shots: list[Shot]) -> None:
    late = story(shots, "dhcp_late.log")
    clock = Clock()
    topic = Topic(clock)
    fire(late, topic, clock, SETTINGS)
    arrive = EXPECTED["corrected"]["arrive"]
    assert {each.at for each in late} == {arrive}, "in one piece, so that one revision corrects"
    assert [round(each.event_at) for each in late] == [38, 40, 40, 40, 40]
    last_at, _, raw, _ = topic.taken[-1]
    assert raw.startswith(b"<30>Nov 21 10:00:40 dhcp2 ")
    assert last_at == START + timedelta(seconds=arrive)


def test_a_line_whose_time_cannot_be_rewritten_is_sent_as_it_is() -> None:
    clock = Clock()
    topic = Topic(clock)
    junk = [b"not syslog at all", b"\xff\xfe", b"\x00"]
    fire([shot(0.0, raw=raw) for raw in junk], topic, clock, SETTINGS)
    assert [raw for _, _, raw, _ in topic.taken] == junk


def test_as_is_leaves_the_line_alone() -> None:
    clock = Clock()
    topic = Topic(clock)
    fire([shot(5.0, as_is=True)], topic, clock, SETTINGS)
    assert [(at, raw) for at, _, raw, _ in topic.taken] == [(START + timedelta(seconds=5), sshd(0))]


def test_too_large_a_line_is_told_and_the_rest_goes_on() -> None:
    small = load(kafka={"max_message_bytes": 200})
    clock = Clock()
    topic = Topic(clock)
    told: list[str] = []
    huge = shot(0.0, raw=sshd(0, "x" * 300), origin="big.log line 7")
    sent = fire([huge, shot(1.0)], topic, clock, small, tell=told.append)
    assert len(topic.taken) == sent.total == 1
    assert told == sent.refused
    assert "big.log line 7" in told[0]
    assert str(len(sshd(0, "x" * 300))) in told[0]
    assert "200" in told[0]


def test_mode_is_live_unless_said() -> None:
    clock = Clock()
    topic = Topic(clock)
    fire([shot(0.0)], topic, clock, SETTINGS)
    fire([shot(0.0)], topic, clock, SETTINGS, mode="replay")
    assert [headers.get("mode") for *_, headers in topic.taken] == [None, b"replay"]


def test_a_sender_that_fell_behind_keeps_the_gaps() -> None:
    clock = Clock()
    topic = Topic(clock)

    def slow(name: str, raw: bytes, headers: list[tuple[str, bytes]]) -> None:
        topic(name, raw, headers)
        if len(topic.taken) == 1:
            clock.sleep(60)

    fire([shot(0.0), shot(1.0), shot(3.0)], slow, clock, SETTINGS)
    assert [(at - START).total_seconds() for at, *_ in topic.taken] == [0.0, 60.0, 62.0]
    assert topic.taken[2][2].startswith(b"<86>1 2026-11-21T10:01:02.")


@pytest.mark.full
def test_no_broker_is_one_sentence_that_names_it(tmp_path: Path) -> None:
    nobody: Settings = load(kafka={"bootstrap": "127.0.0.1:9"})
    (tmp_path / "a.log").write_bytes(sshd(1))
    with pytest.raises(Retryable, match=r"127\.0\.0\.1:9"):
        run(plan_of_files([tmp_path / "a.log"], "sshd"), nobody)


# -- the story


def test_the_plan_has_the_size_it_says(shots: list[Shot]) -> None:
    totals = EXPECTED["totals"]
    assert len(shots) == totals["messages"]
    assert Counter(each.source for each in shots) == totals["by_source"]
    assert 80 < max(each.at for each in shots) <= 95


def test_only_the_planned_lines_are_dead_letters(shots: list[Shot]) -> None:
    clock = Clock()
    topic = Topic(clock)
    fire(shots, topic, clock, SETTINGS)
    dead = [
        each.origin
        for each, (at, _, raw, headers) in zip(shots, topic.taken, strict=True)
        if is_dead(each.source, raw, at, headers)
    ]
    planned = [each.origin for each in shots if "broken_" in each.origin]
    assert dead == planned
    assert len(dead) == EXPECTED["totals"]["malformed"]


def test_broken_lines_arrive_as_they_are(shots: list[Shot]) -> None:
    broken = [each for each in shots if "broken_" in each.origin]
    clock = Clock()
    topic = Topic(clock)
    fire(broken, topic, clock, SETTINGS)
    assert [raw for _, _, raw, _ in topic.taken] == [each.raw for each in broken]


def test_the_storys_files_are_what_its_script_writes(tmp_path: Path) -> None:
    space: dict[str, object] = {"__name__": "story", "__file__": str(tmp_path / "make_story.py")}
    source = (STORY / "make_story.py").read_text("utf-8")
    exec(compile(source, "make_story.py", "exec"), space)
    space["main"]()  # type: ignore[operator]
    written = sorted(path.name for path in tmp_path.iterdir())
    assert written
    for name in written:
        assert (STORY / name).read_bytes() == (tmp_path / name).read_bytes(), name


def test_story_files_lie_where_their_own_times_say(plan: Plan, shots: list[Shot]) -> None:
    zero = datetime(2026, 3, 2, 9, tzinfo=UTC)
    for each in plan.input:
        if Path(each.file).parent == STORY and each.gap is None:
            assert each.zero == zero, each.file
            assert each.squeeze == 1.0, each.file
    accepted = [s for s in story(shots, "sshd.log") if b"Accepted password for backup" in s.raw]
    assert [round(s.at) for s in accepted] == [18, 36]


def test_nobody_leases_the_unleased_address(shots: list[Shot]) -> None:
    ip = EXPECTED["none"]["ip"].encode()
    granted = [s for s in shots if s.source == "isc_dhcpd" and b"DHCPACK" in s.raw]
    assert granted
    assert not [s for s in granted if b" " + ip + b" " in s.raw]
    assert [s for s in shots if s.source == "zeek:http" and ip in s.raw]


def test_the_story_alerts_where_it_should_and_nowhere_else(shots: list[Shot]) -> None:
    told = [each for each in shots if Path(each.origin.rsplit(" line ", 1)[0]).parent == STORY]
    clock = Clock()
    topic = Topic(clock)
    fire(told, topic, clock, SETTINGS)
    records = [
        Record(f"r{nth}", each.source, "live", at, raw, headers)
        for nth, (each, (at, _, raw, headers)) in enumerate(zip(told, topic.taken, strict=True))
    ]
    events = {e["event_uid"]: e for e in event_rows(records, ParseSettings.of(SETTINGS))}
    pack = compile_rules(rule_folders(SETTINGS)).pack
    alerting = {rule.id: rule.title for rule in pack.rules if rule.level in ALERTING}
    found = {
        (events[uid].get("src_ip") or events[uid].get("host_name"), alerting[rule])
        for rule, uid in brute_force(pack, events.values())
        if rule in alerting
    }
    counted = {rule.title for rule in pack.correlations}
    ip = EXPECTED["intruder"]["addresses"][1]
    single = [title for title in EXPECTED["intruder"]["alerts"] if title not in counted]
    assert found == {
        *((ip, title) for title in single),
        *((EXPECTED["host"]["hostname"], title) for title in EXPECTED["host"]["alerts"]),
        *((EXPECTED[one]["ip"], EXPECTED[one]["rule"]) for one in ("corrected", "none", "outside")),
    }
    assert set(EXPECTED["intruder"]["alerts"]) - set(single) <= counted


#  .102  [lt-2291 ~~~~~~~~]24    30[phone-58 ------      .120  [tab-0417 -----]38 40[ws-3310 ---
#  .117                              34[lt-2291 ~~~                    45: traversal ^
def test_the_leases_of_the_story_are_those_expected(shots: list[Shot]) -> None:
    dhcp = story(shots, "dhcp.log")
    late = story(shots, "dhcp_late.log")
    before, after = holders(dhcp), holders(dhcp + late)
    bad, moved = EXPECTED["intruder"], EXPECTED["corrected"]
    first, second = bad["addresses"]
    assert after(first, 10) == after(first, 18) == after(second, 36) == bad["mac"]
    assert after(second, 57) == bad["mac"]
    assert after(first, bad["until"] + 2) is None
    assert after(first, 45) == bad["later_mac"]
    assert before(moved["ip"], moved["event_at"]) == moved["old_mac"]
    assert after(moved["ip"], moved["event_at"]) == moved["new_mac"]
    assert after(EXPECTED["none"]["ip"], 26) is None


def holders(shots: list[Shot]) -> Callable[[str, float], str | None]:
    """Who held an address at an offset, by these lines; as the lease rules tell it."""
    clock = Clock()
    topic = Topic(clock)
    fire(sorted(shots, key=lambda each: each.at), topic, clock, SETTINGS)
    lines = []
    for nth, (at, _, raw, headers) in enumerate(topic.taken):
        (event,) = parse("isc_dhcpd", raw, at, headers)
        ip = (event.get("src_endpoint") or {}).get("ip")
        if ip:
            lines.append(lease_event(nth, ip, event, at))

    def holder(ip: str, offset: float) -> str | None:
        mine = [line for line in lines if line.ip == ip]
        held = lease_rules.replay(mine, ip=ip).at(micros(START + timedelta(seconds=offset)))
        return held.mac if held else None

    return holder


def lease_event(nth: int, ip: str, event: Event, at: datetime) -> lease_rules.LeaseEvent:
    end = event["src_endpoint"]
    return lease_rules.LeaseEvent(
        event_uid=f"{nth:05d}",
        scope="site",
        ip=ip,
        mac=end.get("mac"),
        hostname=end.get("hostname"),
        activity=event["activity_id"],
        time_us=micros(event["time"]),
        received_us=micros(at),
        lease_seconds=event.get("lease_dur") or 86400,
    )


def micros(when: datetime) -> int:
    return round(when.timestamp() * 1_000_000)


def test_a_broker_gets_every_byte(broker: Broker, tmp_path: Path) -> None:
    settings = load(kafka={"bootstrap": broker.address, "topic_prefix": "replayed."})
    (tmp_path / "a.log").write_bytes(b"\n".join([sshd(1), b"\xff junk", sshd(2)]))
    plan = plan_of_files([tmp_path / "a.log"], "sshd", "UTC", as_is=True)
    sent = run(plan, settings, speed=float("inf"))
    assert (sent.messages, sent.total, sent.failed) == ({"replayed.sshd": 3}, 3, [])
    reader = Consumer(
        {"bootstrap.servers": broker.address, "group.id": "t", "auto.offset.reset": "earliest"}
    )
    reader.subscribe(["replayed.sshd"])
    got = reader.consume(3, 20)
    reader.close()
    assert [message.value() for message in got] == [sshd(1), b"\xff junk", sshd(2)]
    assert ("sender", b"replay a.log line 2") in (got[1].headers() or [])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--source, or --plan"),
        (["a.log"], "--source is missing"),
        (["--plan", "p.toml", "--tz", "UTC"], "go with files"),
    ],
)
def test_a_wrong_call_is_refused(words: list[str], said: str) -> None:
    parser = argparse.ArgumentParser()
    build(parser.add_subparsers())
    arguments = parser.parse_args(["replay", *words])
    with pytest.raises(Usage, match=said):
        arguments.run(arguments, SETTINGS)


def test_naive_times_are_written_in_the_zone_that_reads_them(tmp_path: Path) -> None:
    line = b"Nov 21 02:40:27 vm dhcpd[1]: DHCPACK on 10.0.0.1 to 02:00:00:00:00:01 via br0"
    (tmp_path / "d.log").write_bytes(line)
    clock = Clock()
    topic = Topic(clock)
    made = plan_of_files([tmp_path / "d.log"], "isc_dhcpd", "Asia/Tokyo")
    fire(schedule(made), topic, clock, SETTINGS)
    at, _, raw, headers = topic.taken[0]
    assert raw.startswith(f"{START.astimezone(ZoneInfo('Asia/Tokyo')):%b %d %H:%M:%S}".encode())
    assert parse("isc_dhcpd", raw, at, headers)[0]["time"] == START


def test_inputs_may_name_their_host(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(sshd(1))
    one = ReplayInput(file=str(tmp_path / "a.log"), source="sshd", host="site-2")
    assert ("host", b"site-2") in schedule(Plan(input=(one,)))[0].headers
