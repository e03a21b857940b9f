"""How right a product is about whom an address belonged to, at instants with a known answer."""

from __future__ import annotations

import csv
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from enrich.dhcp.lease_rules import LEASE_ACTIVITIES, LeaseEvent, Timeline, replay
from headgate.lab.record_files import DHCP, SCOPE, day_events, read_lines
from infra.errors import Usage

RIGHT, WRONG, UNKNOWN = "right", "wrong", "unknown"
HELD, HANDED_ON, NOBODY = "held", "handed on", "nobody"
"""Kinds of questions: an address that one device had all day, one that several had, and an instant
at which nobody held it."""

_Answer = tuple[str | None, str | None]
"""Hardware address and name of the device; both None where the product names nobody."""


def own_timelines(events: Iterable[Mapping[str, Any]]) -> dict[str, Timeline]:
    """Who held each address, by Headgate's rules, from all of a day's DHCP events."""
    lines: dict[str, list[LeaseEvent]] = defaultdict(list)
    for event in events:
        client = event.get("src_endpoint") or {}
        if event.get("class_uid") == 4004 and event["activity_id"] in LEASE_ACTIVITIES:
            # A DISCOVER and a refusal without an address say nothing of one.
            if not client.get("ip"):
                continue
            micros = round(event["time"].timestamp() * 1_000_000)
            lines[client["ip"]].append(
                LeaseEvent(
                    event_uid=event["event_uid"],
                    scope=SCOPE,
                    ip=client["ip"],
                    mac=client.get("mac"),
                    hostname=client.get("hostname"),
                    activity=event["activity_id"],
                    time_us=micros,
                    received_us=micros,
                    lease_seconds=event.get("lease_dur") or 0,
                    server=event.get("host_name"),
                )
            )
    return {ip: replay(of_ip) for ip, of_ip in lines.items()}


def own_answers(folder: Path) -> list[dict[str, Any]]:
    """Headgate's answers to a day's questions, from its DHCP logs alone."""
    timelines = own_timelines(day_events(folder, DHCP))
    answers = []
    for question in read_lines(folder / "lookups.jsonl"):
        timeline = timelines.get(question["ip"])
        instant = round(datetime.fromisoformat(question["time"]).timestamp() * 1_000_000)
        session = timeline.at(instant) if timeline else None
        answers.append({"id": question["id"], "mac": session.mac if session else None})
    return answers


def last_answers(folder: Path) -> list[dict[str, Any]]:
    """What one gets without time: for each address whoever was granted it last."""
    timelines = own_timelines(day_events(folder, DHCP))
    last = {ip: t.sessions[-1].mac for ip, t in timelines.items() if t.sessions}
    questions = read_lines(folder / "lookups.jsonl")
    return [{"id": question["id"], "mac": last.get(question["ip"])} for question in questions]


def read_answers(file: Path) -> list[dict[str, Any]]:
    """A product's answers: CSV with a header where the file's name ends so, else JSON lines."""
    if file.suffix != ".csv":
        return read_lines(file)
    try:
        with file.open(encoding="utf-8-sig", newline="") as opened:
            return list(csv.DictReader(opened))
    except (OSError, ValueError, csv.Error) as error:
        raise Usage(f"{file} cannot be read: {error}") from error


def score(truth: Iterable[Mapping[str, Any]], answers: Iterable[Mapping[str, Any]]) -> Any:
    """Rows kind, asked, right, wrong, unknown, right_percent: one a kind of question, and all.

    An answer names its question by `id`, or by `ip` and `time`, and the device by `mac`, in any
    notation, or by `device`, its name with or without a domain. Empty, null, or no answer at
    all means nobody: right where nobody held the address, unknown where somebody did.
    Raises `Usage` for an answer to what was not asked, and for a second one.
    """
    questions = list(truth)
    given = _by_question(questions, answers)
    holders = defaultdict(set)
    for question in questions:
        if question["mac"]:
            holders[question["ip"]].add(question["mac"])
    counts: Counter[tuple[str, str]] = Counter()
    for question in questions:
        several = len(holders[question["ip"]]) > 1
        kind = NOBODY if question["mac"] is None else HANDED_ON if several else HELD
        counts[kind, _judged(question, given.get(question["id"], (None, None)))] += 1
    rows = [_row(kind, [(k, n) for k, n in counts.items() if k[0] == kind]) for kind in _KINDS]
    return [*(row for row in rows if row["asked"]), _row("all", list(counts.items()))]


_KINDS = (HELD, HANDED_ON, NOBODY)


def _row(kind: str, counts: Iterable[tuple[tuple[str, str], int]]) -> dict[str, Any]:
    verdicts: Counter[str] = Counter()
    for (_, verdict), count in counts:
        verdicts[verdict] += count
    asked = verdicts.total()
    percent = round(100 * verdicts[RIGHT] / asked, 2) if asked else None
    each = {verdict: verdicts[verdict] for verdict in (RIGHT, WRONG, UNKNOWN)}
    return {"kind": kind, "asked": asked, **each, "right_percent": percent}


def _judged(question: Mapping[str, Any], answer: _Answer) -> str:
    mac, device = answer
    if mac is None and device is None:
        return RIGHT if question["mac"] is None else UNKNOWN
    # A hardware address says more than a name: where a product gives both, it counts.
    if mac is not None:
        return RIGHT if mac == question["mac"] else WRONG
    return RIGHT if device == question["device"] else WRONG


def _by_question(
    questions: Iterable[Mapping[str, Any]], answers: Iterable[Mapping[str, Any]]
) -> dict[int, _Answer]:
    ids = {str(question["id"]): question["id"] for question in questions}
    places: dict[tuple[str, datetime], list[int]] = defaultdict(list)
    for question in questions:
        places[question["ip"], datetime.fromisoformat(question["time"])].append(question["id"])
    given: dict[int, _Answer] = {}
    for number, answer in enumerate(answers, 1):
        if answer.get("id") not in (None, ""):
            named = ids.get(str(answer["id"]))
            numbers = [] if named is None else [named]
        else:
            numbers = places.get((str(answer.get("ip")), _instant(answer, number)), [])
        if not numbers:
            raise Usage(f"answer {number} is to no question of lookups.jsonl: {dict(answer)}")
        for question_id in numbers:
            if question_id in given:
                raise Usage(f"answer {number} is a second one to question {question_id}")
            given[question_id] = (_mac(answer), _device(answer))
    return given


def _instant(answer: Mapping[str, Any], number: int) -> datetime:
    try:
        instant = datetime.fromisoformat(str(answer.get("time")))
    except ValueError:
        raise Usage(
            f"answer {number} has neither an id nor a time as ISO 8601: {dict(answer)}"
        ) from None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def _mac(answer: Mapping[str, Any]) -> str | None:
    digits = re.sub(r"[^0-9a-f]", "", str(answer.get("mac") or "").lower())
    return ":".join(digits[n : n + 2] for n in range(0, len(digits), 2)) or None


def _device(answer: Mapping[str, Any]) -> str | None:
    return str(answer.get("device") or "").strip().lower().partition(".")[0] or None
