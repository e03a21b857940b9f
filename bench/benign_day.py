"""Alerts for nothing: what rules raise on working days without an attack, and how right we are
about who held an address.

Ten days of ten seeds in a row, on which each chore falls as often as it does in two weeks; then one
day on which all fall. `HEADGATE_BENCH_RULES` names a folder of
further rules, such as a clone of public ones, which are then counted too.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from alerts.compiler.compiler import Compiled
from bench.measure import Report
from headgate.lab.attribution_score import last_answers, own_answers, score
from headgate.lab.record_files import read_lines
from headgate.lab.rule_noise import BAR, SEVERE, alerts_of_day, chosen_rules, host_days
from headgate.lab.write import make_day, write_day
from infra.config.settings import load

SEEDS = tuple(range(1, 11))
LOST = (0.0, 0.02)
"""Shares of DHCP lines that never arrive."""
RULES = "HEADGATE_BENCH_RULES"


def run(quick: bool = False) -> Report:
    """Alerts by level of bundled rules, and of those the reader names; then attribution."""
    report = Report("benign_day", "make bench ONLY=benign_day")
    home = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    seeds = SEEDS[:2] if quick else SEEDS
    try:
        days = [_written(home / f"day-{seed}", seed) for seed in seeds]
        busy = _written(home / "busy", SEEDS[0], every_chore=True)
        packs = {"bundled": chosen_rules(None, load(home=home))}
        if named := os.environ.get(RULES):
            packs["named"] = chosen_rules(Path(named), load(home=home))
        for name, compiled in packs.items():
            bar = BAR if name == "bundled" else None
            _alerts(report, home, f"{name} rules", compiled, days, bar)
            _alerts(report, home, f"{name} rules, every chore on one day", compiled, [busy], None)
        for lost in LOST:
            # Without loss it is the days that the rules saw.
            asked = [_written(home / f"lost-{s}", s, lost=lost) for s in seeds] if lost else days
            _attribution(report, lost, asked)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    report.notes.append("Windows' background is recorded, all else generated after recorded forms")
    return report


def _written(folder: Path, seed: int, *, every_chore: bool = False, lost: float = 0.0) -> Path:
    write_day(make_day(seed, every_chore=every_chore, lost=lost), folder)
    return folder


def _alerts(
    report: Report,
    home: Path,
    name: str,
    compiled: Compiled,
    days: Sequence[Path],
    bar: float | None,
) -> None:
    """Alerts a host and day by level; the bar is for high and critical together."""
    counts: Counter[str] = Counter()
    by_rule: Counter[str] = Counter()
    for day in days:
        for alert in alerts_of_day(day, compiled, load(home=home)):
            counts[alert.level] += 1
            if alert.level in SEVERE:
                by_rule[compiled.sources[alert.rule_id].rule.title] += 1
    machines = sum(host_days(day) for day in days)
    unit = "alerts/host-day"
    for level in ("critical", "high", "medium", "low"):
        report.add(f"{name}: {level}", [counts[level] / machines], unit)
    severe = report.add(f"{name}: high and critical", [by_rule.total() / machines], unit)
    if bar is not None:
        severe.bar, severe.met = f"<= {bar:g}", by_rule.total() / machines <= bar
    rules, refused = len(compiled.sources), len(compiled.refused)
    noisy = "; ".join(f"{title} {count}" for title, count in by_rule.most_common(12)) or "none"
    about = f"{rules} rules ({refused} refused), {machines} host-days"
    report.notes.append(f"{name}: {about}; high and critical: {noisy}")


def _attribution(report: Report, lost: float, days: Sequence[Path]) -> None:
    """Of a hundred questions how many are answered right, over all days; and without time."""
    counts: Counter[str] = Counter()
    for folder in days:
        truth = read_lines(folder / "truth_lookups.jsonl")
        row = score(truth, own_answers(folder))[-1]
        counts.update({name: row[name] for name in ("asked", "right", "wrong", "unknown")})
        counts["without time"] += score(truth, last_answers(folder))[-1]["right"]
    label = f"{lost:.0%} of DHCP lines lost"
    for name in ("right", "wrong", "unknown"):
        report.add(f"{label}: {name}", [100 * counts[name] / counts["asked"]], "% of look-ups")
    without = 100 * counts["without time"] / counts["asked"]
    report.add(f"{label}: right, last lease without time", [without], "% of look-ups")
    report.notes.append(f"{label}: {counts['asked']} look-ups")
