"""Matching a million indicators: every observable of each event, the columns in memory.

Events are made up after the mix of a network: flows, DNS, web, mail and files. Nine values in
ten repeat, as busy hosts and popular names do, or none does (`all different`); one event in a
thousand meets the list.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from alerts.matching.event_rows import event_batch
from alerts.matching.matcher import Matcher
from alerts.rulebook.rule_tests import complete
from alerts.rulepack.indicator_file_format import IndicatorEntry, open_indicators, write_indicators
from alerts.rulepack.indicator_normalisation import SOUGHT, entry
from alerts.rulepack.locations import FOLDER
from alerts.rulepack.predicate import Test
from alerts.rulepack.rule_pack import PackStore, Rule, RulePack
from bench.measure import Report

BAR = 100_000
ENTRIES = 1_000_000
BATCH_ROWS = 10_000
HIT_RATE = 0.001
USUAL = 2_000
"""Different values of a kind that nine in ten observables are taken from."""

KINDS = (("ip", 35), ("network", 5), ("domain", 30), ("hash", 15), ("url", 10), ("email", 5))
"""Kinds of entries, in hundredths of the list."""

OBSERVED = (
    (40, ((2, "ip"), (2, "ip"))),
    (30, ((2, "ip"), (2, "ip"), (1, "domain"))),
    (20, ((2, "ip"), (2, "ip"), (1, "domain"), (6, "url"))),
    (5, ((5, "email"), (5, "email"), (2, "ip"))),
    (5, ((8, "hash"), (8, "hash"), (8, "hash"))),
)
"""Observables of an event, as (OCSF type, kind), in hundredths of the events."""


def run(quick: bool = False) -> Report:
    """Events a CPU second over lists of a million entries, and what it takes to load one."""
    report = Report("indicators", "make bench ONLY=indicators")
    entries, events, repeat = (50_000, 20_000, 1) if quick else (ENTRIES, 60_000, 5)
    home = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    try:
        listed = _made(entries)
        pack = _loaded(report, home, listed)
        for label, usual in (("nine in ten repeat", 0.9), ("all different", 0.0)):
            batches = list(_batches(events, usual, listed))
            _matching(report, pack, f"{entries:,} entries, {label}", batches, repeat)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return report


def _made(count: int) -> dict[str, list[str]]:
    """That many values to list, by kind."""
    rng = random.Random(7)
    return {
        kind: [_value(rng, kind, listed=True) for _ in range(count * share // 100)]
        for kind, share in KINDS
    }


def _loaded(report: Report, home: Path, listed: dict[str, list[str]]) -> RulePack:
    """A pack of one rule over a list of these values, with what compiling it took."""
    began = time.process_time()
    given = [
        IndicatorEntry(*entry(value, kind)) for kind, values in listed.items() for value in values
    ]
    PackStore(home)
    list_hash = write_indicators(home / FOLDER, given)
    report.add(f"compile {len(given):,} entries", [time.process_time() - began], "CPU-s")
    file = home / FOLDER / f"{list_hash}.arrow"
    began = time.process_time()
    open_indicators(file).having(open_indicators(file).keys[:1])
    report.add("open in a worker", [time.process_time() - began], "CPU-s")
    report.notes.append(f"file: {file.stat().st_size / 2**20:.0f} MB, mapped by all workers")
    parts = (("list", "bench"), *(("kind", kind) for kind in SOUGHT))
    asked = Test("observables", "listed", list_hash, parts=parts)
    return RulePack(rules=(Rule(id="bench", title="Listed", predicate=asked),))


def _matching(
    report: Report, pack: RulePack, label: str, batches: Sequence[pa.RecordBatch], repeat: int
) -> None:
    """The rate of the whole matcher: routing, search, confirmation and findings."""
    events = sum(batch.num_rows for batch in batches)
    matcher = Matcher(pack)
    hits = sum(matcher.match(batch).num_rows for batch in batches)
    if not events * HIT_RATE / 2 < hits < events * HIT_RATE * 4:
        raise ValueError(f"{hits} of {events} events met the list; it was made for {HIT_RATE:.1%}")
    rates = [_rate(matcher, batches, events) for _ in range(repeat)]
    met = sorted(rates)[len(rates) // 2] >= BAR
    report.add(label, rates, "events/CPU-s", bar=f">= {BAR:,}", met=met)
    report.notes.append(f"{label}: {hits / events:.2%} of {events:,} events met the list")


def _rate(matcher: Matcher, batches: Sequence[pa.RecordBatch], events: int) -> float:
    began = time.process_time()
    for batch in batches:
        matcher.match(batch)
    return events / (time.process_time() - began)


def _batches(
    events: int, usual: float, listed: Mapping[str, Sequence[str]]
) -> Iterator[pa.RecordBatch]:
    rng = random.Random(11)
    kinds = sorted({kind for _, found in OBSERVED for _, kind in found})
    repeated = {kind: [_value(rng, kind) for _ in range(USUAL)] for kind in kinds}
    shares = [share for share, _ in OBSERVED]
    for start in range(0, events, BATCH_ROWS):
        rows = []
        for number in range(start, min(start + BATCH_ROWS, events)):
            (_, shape) = rng.choices(OBSERVED, shares)[0]
            values = [
                rng.choice(repeated[kind]) if rng.random() < usual else _value(rng, kind)
                for _, kind in shape
            ]
            if rng.random() < HIT_RATE:
                values[-1] = rng.choice(listed[shape[-1][1]])
            rows.append(_event(number, [of for of, _ in shape], values))
        yield event_batch(rows)


def _event(number: int, types: Sequence[int], values: Sequence[str]) -> dict[str, Any]:
    told = [{"type_id": of, "value": value} for of, value in zip(types, values, strict=True)]
    return complete({"event_uid": f"e{number}", "observables": told})


def _value(rng: random.Random, kind: str, listed: bool = False) -> str:
    """A value of a kind; what is listed and what is usual have no value in common."""
    number = rng.getrandbits(40)
    zone = "bad.example" if listed else "example"
    if kind == "ip":
        high = 100 if listed else rng.choice([10, 172, 192, 203])
        return f"{high}.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    if kind == "network":
        return f"101.{number >> 8 & 255}.{number & 255}.0/{rng.choice([22, 24, 26, 28])}"
    if kind == "hash":
        return f"{number:0>64x}" if listed else f"f{number:0>63x}"
    name = f"host{number % 97}.n{number:x}.{zone}"
    return {
        "domain": f"n{number:x}.{zone}" if listed else name,
        "url": f"http://{name}/path/{number:x}?q={number % 1000}",
        "email": f"user{number:x}@{name}",
    }[kind]
