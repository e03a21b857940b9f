"""`headgate lab`: write a benign day, score attribution on it, count alerts on it."""

from __future__ import annotations

import argparse
import sys
from datetime import date
from pathlib import Path
from typing import Any

from infra.config.number_args import whole
from infra.config.settings import Settings
from infra.process.table_output import add_output_option, print_rows


def build(commands: Any) -> None:
    """Register `lab` with its verbs."""
    lab = commands.add_parser("lab", help="a day without attacks, to measure by")
    verbs = lab.add_subparsers(dest="verb", required=True)
    written = verbs.add_parser("write", help="write the logs of a day, and the truth")
    written.add_argument("folder", type=Path, help="a folder that is new or empty")
    written.add_argument(
        "--seed", type=whole(0), default=1, help="the same seed makes the same day"
    )
    written.add_argument("--date", type=_date, help="default: 2026-03-03")
    written.add_argument("--hours", type=_hours, default=24.0, help="only so many, from midnight")
    lost = "so many of a hundred lines of the DHCP servers are lost"
    written.add_argument("--lost", type=_percent, default=0.0, metavar="PERCENT", help=lost)
    chores = "what an administrator does in months falls on this day"
    written.add_argument("--every-chore", action="store_true", help=chores)
    add_output_option(written)
    written.set_defaults(run=_write)
    scored = verbs.add_parser("score", help="how right answers about addresses are")
    scored.add_argument("folder", type=Path, help="a day that 'lab write' wrote")
    answers = "a product's answers, CSV or JSON lines; none: Headgate's"
    scored.add_argument("answers", type=Path, nargs="?", help=answers)
    add_output_option(scored)
    scored.set_defaults(run=_score)
    counted = verbs.add_parser("alerts", help="how many alerts rules raise, all for nothing")
    counted.add_argument("folder", type=Path, help="a day that 'lab write' wrote")
    rules = "a file or folder of rules; none: the bundled ones"
    counted.add_argument("--rules", type=Path, metavar="PATH", help=rules)
    counted.add_argument("--by-rule", action="store_true", help="a row a rule, not a level")
    add_output_option(counted)
    counted.set_defaults(run=_alerts)


def _write(args: argparse.Namespace, settings: Settings) -> int:
    from headgate.lab.write import FIRST_DATE, make_day, shortened, write_day

    day = make_day(
        args.seed, args.date or FIRST_DATE, every_chore=args.every_chore, lost=args.lost / 100
    )
    if args.hours < 24:
        day = shortened(day, args.hours)
    files = write_day(day, args.folder)
    print_rows([{"file": file, "lines": count} for file, count in files.items()], args.output)
    return 0


def _score(args: argparse.Namespace, settings: Settings) -> int:
    from headgate.lab.attribution_score import own_answers, read_answers, score
    from headgate.lab.record_files import read_lines

    truth = read_lines(args.folder / "truth_lookups.jsonl")
    answers = own_answers(args.folder) if args.answers is None else read_answers(args.answers)
    print_rows(score(truth, answers), args.output)
    return 0


def _alerts(args: argparse.Namespace, settings: Settings) -> int:
    from headgate.lab.rule_noise import alerts_of_day, by_level, by_rule, chosen_rules, host_days

    compiled = chosen_rules(args.rules, settings)
    alerts = alerts_of_day(args.folder, compiled, settings)
    days = host_days(args.folder)
    print_rows(by_rule(alerts, compiled) if args.by_rule else by_level(alerts, days), args.output)
    rules, refused = len(compiled.sources), len(compiled.refused)
    print(f"{rules} rules ({refused} refused), {days} hosts for a day", file=sys.stderr)
    return 0


def _date(text: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no date; write 2026-03-03") from None
    # Times around midnight lie in the years beside it.
    if not 1970 <= day.year <= 9900:
        raise argparse.ArgumentTypeError(f"'{text}' lies beyond the years 1970 to 9900")
    return day


def _hours(text: str) -> float:
    return _between(text, 1, 24, "hours")


def _percent(text: str) -> float:
    return _between(text, 0, 100, "percent")


def _between(text: str, least: float, most: float, unit: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not least <= number <= most:
        raise argparse.ArgumentTypeError(f"'{text}': {least:g} to {most:g} {unit} were expected")
    return number
