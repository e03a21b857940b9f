"""The benign day: the same for a seed, read by our parsers, and true to what its servers gave."""

from __future__ import annotations

from collections import Counter
from datetime import date
from itertools import pairwise
from pathlib import Path

import pytest

from headgate.cli import main
from headgate.lab.day import Day, lab_instant
from headgate.lab.record_files import day_events, read_lines, read_manifest
from headgate.lab.write import lookups, make_day, shortened, write_day
from infra.errors import Usage

HOURS = 10.0


@pytest.fixture(scope="module")
def day() -> Day:
    return shortened(make_day(), HOURS)


@pytest.fixture(scope="module")
def folder(day: Day, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("lab") / "day"
    write_day(day, made)
    return made


@pytest.mark.full
def test_a_seed_makes_one_day(day: Day) -> None:
    again = shortened(make_day(), HOURS)
    assert again.lines == day.lines
    assert again.actions == day.actions
    other = shortened(make_day(seed=2), HOURS)
    assert other.lines["isc_dhcpd"] != day.lines["isc_dhcpd"]


def test_lost_lines_change_nothing_else(day: Day) -> None:
    lossy = shortened(make_day(lost=0.1), HOURS)
    assert lookups(lossy) == lookups(day)
    assert lossy.lines["zeek:dns"] == day.lines["zeek:dns"]
    assert 0.8 < len(lossy.lines["isc_dhcpd"]) / len(day.lines["isc_dhcpd"]) < 0.97


def test_our_parsers_read_every_line_at_its_time(day: Day, folder: Path) -> None:
    only = ("isc_dhcpd", "kea_dhcp4", "auditd", "sshd", "sudo", "nginx", "syslog", "zeek:http")
    events = day_events(folder, only)
    # auditd's records of one event are one row; all else is a row a line.
    lines = sum(len(day.lines[source]) for source in only if source != "auditd")
    assert sum(event["source"] != "auditd" for event in events) == lines
    written = {round(seconds) for source in only for seconds, _ in day.lines[source]}
    assert {round(event["time"].timestamp()) for event in events} <= {
        second + late for second in written for late in (-1, 0, 1)
    }


def test_an_address_is_held_by_one_device_at_a_time(day: Day) -> None:
    by_time = sorted(day.holdings, key=lambda holding: (holding.ip, holding.start))
    for earlier, later in pairwise(by_time):
        assert earlier.ip != later.ip or earlier.end <= later.start


def test_what_is_asked_was_held_by_whom_the_truth_names(day: Day) -> None:
    asked = lookups(day)
    kinds = Counter(question["mac"] is None for question in asked)
    assert kinds[False] > 300
    assert kinds[True] > 0
    for question in asked:
        iso = question["time"]
        holders = {
            holding.mac
            for holding in day.holdings
            if holding.ip == question["ip"] and _iso(holding.start) <= iso < _iso(holding.end)
        }
        assert holders == ({question["mac"]} if question["mac"] else set())


def _iso(seconds: float) -> str:
    return lab_instant(seconds).isoformat(timespec="milliseconds")


def test_questions_do_not_tell_the_answers(folder: Path) -> None:
    assert {frozenset(row) for row in read_lines(folder / "lookups.jsonl")} == {
        frozenset({"id", "time", "ip"})
    }


def test_the_day_has_what_looks_bad(day: Day) -> None:
    assert len({action.looks_bad for action in make_day(every_chore=True).actions}) > 15
    assert any(action.looks_bad for action in day.actions)


def test_a_folder_that_holds_something_is_left_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lab", "write", str(folder)]) == 2
    assert "is not empty; name a folder that is new" in capsys.readouterr().err


def test_a_folder_without_a_day_is_told(tmp_path: Path) -> None:
    with pytest.raises(Usage, match=r"'headgate lab write .*' makes a day"):
        read_manifest(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(Usage, match=r"cannot be read .*; write the day again"):
        read_manifest(tmp_path)


def test_a_weekly_chore_falls_once_in_any_five_days_in_a_row() -> None:
    for first in range(1, 7):
        days = [Day(seed, date(2026, 3, 3)) for seed in range(first, first + 5)]
        assert sum(day.falls(0.2) for day in days) == 1
        assert sum(day.falls(0.8) for day in days) == 4
        assert all(day.falls(1.0) for day in days)
    assert sum(Day(seed, date(2026, 3, 3)).falls(0.05) for seed in range(1, 21)) == 1
