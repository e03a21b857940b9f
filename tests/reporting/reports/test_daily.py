"""The daily report: what it says, what it never lets in, and how it looks when there is nothing."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest

from infra.config.settings import load
from infra.errors import Retryable, Usage
from infra.streaming.lake import Lake
from reporting.document.html import to_html
from reporting.figures.daily import figures
from reporting.interval import Interval, parse_interval
from reporting.reports.daily import compose
from tests.api.story import DAY, DEAD, A, alert, event, record
from tests.reporting.ledger.test_completeness import run
from tests.reporting.memory_lake import MemoryLake, story_in_memory

HOME = Path("/nowhere")
EVIL = '"><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7*7 }}'


@pytest.fixture
def bare(tmp_path: Path) -> MemoryLake:
    return MemoryLake()


@pytest.fixture
def day() -> MemoryLake:
    return story_in_memory()


def page(lake: MemoryLake, interval: str = "2026-11-20") -> str:
    return to_html(compose(lake.request(HOME, interval)))


class _Elements(HTMLParser):
    """Names of all elements, and every attribute that could load or run something."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.risky: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        for name, value in attrs:
            local = (value or "").startswith(("#", "data:text/csv;base64,"))
            if name.startswith("on") or (name in ("src", "href", "xlink:href") and not local):
                self.risky.append(f"{tag} {name}={value}")


def elements(html: str) -> _Elements:
    parser = _Elements()
    parser.feed(html)
    return parser


def test_the_numbers_are_those_of_the_day(day: MemoryLake) -> None:
    found = figures(day.request(HOME))
    assert (found.alerts, found.revisions) == (4, 5)
    assert found.by_level == {"high": 3, "medium": 1}
    assert found.device_count == 2
    assert (found.devices[0]["entity_value"], found.devices[0]["alerts"]) == (A, 2)
    assert [(row["rule_id"], row["alerts"], row["findings"]) for row in found.rules] == [
        ("ssh-guess", 3, 3),
        ("odd-dns", 1, 1),
    ]
    assert {row["source"]: (row["events"], row["dead"]) for row in found.sources} == {
        "sshd": (3, 0),
        "zeek:dns": (1, 0),
        "dhcpd": (1, 0),
        "zeek:conn": (0, 2),
    }
    assert [(row["reason"], row["n"]) for row in found.reasons] == [("not JSON at byte 3", 2)]
    assert found.coverage == {"leased": 3, "outside": 1}
    assert [(row["span"], row["n"], row["p50"]) for row in found.delays] == [
        ("event to arrival", 4, 2.0),
        ("arrival to detection", 4, 3.0),
        ("event to detection", 4, 5.0),
    ]
    assert found.ledger_total.unaccounted == 0


def test_hours_without_alerts_have_their_place(day: MemoryLake) -> None:
    hours = figures(day.request(HOME)).buckets
    assert len(hours) == 24
    assert {bucket.start.hour: bucket.counts for bucket in hours if bucket.counts} == {
        12: {"high": 3, "medium": 1}
    }
    days = figures(day.request(HOME, "2026-11-18/2026-11-22")).buckets
    assert [sum(bucket.counts.values()) for bucket in days] == [0, 0, 4, 0]


def test_the_page_stands_alone_and_shows_each_chart(day: MemoryLake) -> None:
    html = page(day)
    found = elements(html)
    assert found.risky == []
    assert not {"script", "link", "img", "iframe", "object"} & set(found.names)
    for label in ("Alerts over time", "Attribution of findings", "Delay from event to detection"):
        assert f'<svg role="img" aria-label="{label}' in html
    assert "not JSON at byte 3" in html
    assert "to write and publish the alert comes on top" in html
    assert "2026-11-20 to 2026-11-21 UTC" in html


def test_the_same_tables_give_the_same_page(day: MemoryLake) -> None:
    assert page(day) == page(day)


def test_what_attackers_write_stays_text(bare: MemoryLake) -> None:
    row = alert("evil", "12:00", entity_value=EVIL, rule_name=EVIL, title=EVIL, entity_type="host")
    body = json.loads(row["body"])
    body["attribution"]["hostname"] = EVIL
    bare.add("gold.alert", [row | {"body": json.dumps(body)}])
    bad = event("bad", "12:00", dead_letter_reason=EVIL, **{**DEAD, "source": EVIL})
    bare.add("silver.event", [bad])
    html = page(bare)
    found = elements(html)
    assert found.risky == []
    assert not {"script", "img"} & set(found.names)
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 4
    assert "{{ 7*7 }}" in html


def test_an_empty_lake_gives_a_sensible_page(bare: MemoryLake) -> None:
    html = page(bare)
    for sentence in ("No alert in this interval.", "No rule matched", "Nothing was received"):
        assert sentence in html
    assert "<svg" not in html
    assert not re.search(r"\bnan\b|None|Undefined", html)


def test_an_unaccounted_record_stands_out(bare: MemoryLake) -> None:
    bare.add("bronze.record", [record("lost", "12:00")])
    html = page(bare)
    assert '<div class="tile bad"><dt>Unaccounted</dt><dd>1</dd></div>' in html


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("2026-11-20", DAY, DAY + timedelta(days=1)),
        ("2026-11-20/2026-11-22", DAY, DAY + timedelta(days=2)),
        ("2026-11-20T06:00/2026-11-20T18:00+02:00", DAY.replace(hour=6), DAY.replace(hour=16)),
    ],
)
def test_an_interval_is_read_in_utc(text: str, start: datetime, end: datetime) -> None:
    assert parse_interval(text) == Interval(start, end)


@pytest.mark.parametrize(
    "text", ["", "someday", "2026-W60", "2026-13", "2026-11-20/", "2026-11-21/2026-11-20", "/"]
)
def test_a_wrong_interval_is_named(text: str) -> None:
    with pytest.raises(Usage, match=re.escape(f"--interval {text}:")):
        parse_interval(text)


def test_the_command_writes_the_page_and_lists_it(
    told: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "page.html"
    asked = ["report", "run", "daily", "--interval", "2026-11-20/2026-11-21"]
    assert run([*asked, "--out", str(out)], told.settings) == 0
    assert capsys.readouterr().out.strip() == str(out)
    assert out.read_text("utf-8").startswith("<!doctype html>")
    assert run(asked, told.settings) == 0
    assert run(["report", "list"], told.settings) == 0
    assert "daily-2026-11-20_2026-11-21.html" in capsys.readouterr().out


def test_a_dry_run_says_of_what_time_it_would_be_and_makes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = load(home=tmp_path)
    asked = ["report", "run", "device", "--interval", "2026-W47", "--dry-run"]
    with pytest.raises(Usage, match="give --subject, a MAC address"):
        run(asked, settings)
    assert run([*asked, "--subject", "laptop-7"], settings) == 0
    assert capsys.readouterr().out == "device: 2026-11-16 to 2026-11-23 UTC\n"
    assert list(tmp_path.iterdir()) == []


def test_a_table_that_is_missing_is_named(lake: Lake, tmp_path: Path) -> None:
    (lake.settings.lake_root / "gold" / "alert").rename(tmp_path / "away")
    with pytest.raises(Retryable, match=r"gold\.alert "):
        run(["report", "run", "daily", "--interval", "2026-11-20"], lake.settings)


def test_checks_that_failed_and_new_fields_are_in_the_page(bare: MemoryLake) -> None:
    assert "No check ran in this interval." in page(bare)
    at = DAY.replace(hour=12)
    outcome = {"run_at": at, "suite": "events", "checked": 9, "unexpected": 0, "examples": None}
    bad = {"passed": False, "unexpected": 3, "examples": EVIL}
    field = {"source": "okta", "first_seen": at, "rows": 1, "event_uid": "e", "baseline": False}
    bare.add("ops.quality", [
        outcome | {"expectation": "device is there"} | bad,
        outcome | {"expectation": "event_uid is there once", "passed": True},
    ])  # fmt: skip
    bare.add("ops.drift", [
        *(field | {"field": f"new{n}"} for n in range(12)),
        field | {"field": "always there", "baseline": True},
    ])  # fmt: skip
    html = page(bare)
    assert "1 runs of checks" in html
    assert "device is there" in html
    assert "3 of 9" in html
    assert "event_uid is there once" not in html
    assert "new0" in html
    assert "and 2 more" in html
    assert "always there" not in html
    assert elements(html).risky == []
    assert "script" not in elements(html).names
