"""`headgate rules thresholds`: what a correlation would have told with another number."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from alerts.cli.explain import asking
from alerts.cli.output import since_when
from alerts.compiler.compiler import RuleSource
from alerts.rulepack.rule_pack import Correlation
from infra.config.number_args import whole
from infra.config.settings import Settings
from infra.errors import Usage
from infra.process.os_user import acting_user
from infra.process.table_output import WIDE, add_output_option, print_document, print_rows
from infra.process.text_output import printable

if TYPE_CHECKING:
    from alerts.tuning.thresholds import ThresholdHistory, ThresholdOutcome

_BAR = 9
_BRIEF = ("choice", "now", "count", "window", "group_by", "alerts", "true_kept", "noise_kept",
          "curve")  # fmt: skip
"""What a person looks at first."""


def build(verbs: Any) -> None:
    """Add `thresholds` below `headgate rules`."""
    parser = verbs.add_parser(
        "thresholds",
        help="what another count, window or group of a correlation would have raised",
        description="Runs a correlation over the findings that gold.finding still has of the rules "
        "it counts, once for each choice, through the correlator and the alert state that jobs "
        "use. Without --count, --window and --group-by it tries counts, then windows around those "
        "in force. kept: judged alerts of the rule that the choice would still raise (it fires on "
        "one of their events, or fired for the group less than a window before); noise is what was "
        "judged false_positive or benign. --write N keeps choice N as an own rule in the first "
        "folder of alerts.rules and switches off the one it replaces; verdicts and alerts of the "
        "old one stay under its id.",
    )
    parser.add_argument("rule", metavar="RULE", help="id or name of a correlation")
    parser.add_argument("--since", default="30d", help="an instant, or 24h, 30d (default: 30d)")
    parser.add_argument("--count", type=_numbers, default=[], help="such as 3,5,10")
    parser.add_argument("--window", type=_spans, default=[], help="such as 5m,10m,1h")
    parser.add_argument(
        "--group-by",
        action="append",
        default=[],
        metavar="FIELDS",
        help="fields joined by commas, as the rule would name them; may be given again",
    )
    parser.add_argument(
        "--write", type=whole(), metavar="N", help="keep choice N; needs the next two"
    )
    parser.add_argument("--owner", help="who answers for it")
    parser.add_argument("--reason", help="why, for those who wonder later")
    add_output_option(parser, WIDE)
    parser.add_argument(
        "--summary", action="store_true", help="one JSON document: choices, and what they rest on"
    )
    parser.set_defaults(run=show_thresholds)


def _numbers(text: str) -> list[int | float]:
    try:
        parts = text.split(",")
        numbers = [int(part) if part.strip().isdecimal() else float(part) for part in parts]
    except ValueError:
        numbers = []
    # To Python infinity is a number, and so is what is none.
    if not numbers or not all(map(math.isfinite, numbers)):
        raise argparse.ArgumentTypeError(f"'{text}': write numbers, such as 3,5,10")
    return numbers


def _spans(text: str) -> list[int]:
    from sigma.correlations import SigmaCorrelationTimespan
    from sigma.exceptions import SigmaTimespanError

    try:
        return [SigmaCorrelationTimespan(part.strip()).seconds for part in text.split(",")]
    except SigmaTimespanError as error:
        why = f"{str(error).rstrip('.')}: write spans of time, such as 90s,5m,2h,1d"
        raise argparse.ArgumentTypeError(why) from None


def show_thresholds(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules thresholds RULE`: exit code 1 when there is nothing to count."""
    from alerts.tuning.threshold_file import threshold_rule
    from alerts.tuning.thresholds import evaluate_threshold, threshold_history

    now = datetime.now(UTC)
    since = since_when(args.since, now)
    _require_whole(args)
    source, current = threshold_rule(settings, args.rule)
    groups = {fields: _grouped(settings, source, fields) for fields in args.group_by}
    choices = _choices(args, list(groups.values()), current)
    # History is read once for all choices, so it reaches back by the longest window.
    longest = max(choice.timespan_seconds for choice in choices)
    with asking(settings) as ask:
        history = threshold_history(
            ask,
            current,
            since,
            now,
            longest_seconds=longest,
            confirmed=_confirmed(settings),
        )
    if args.summary:
        outcomes = [evaluate_threshold(choice, history, settings) for choice in choices]
        rows = _rows(current, choices, outcomes, history)
        notes = list(_limits(source, current, outcomes, history))
        print_document(
            {"rule": current.id, "since": history.since.isoformat(), "until": now.isoformat(),
             "findings": len(history.rows), "choices": rows, "notes": notes}
        )  # fmt: skip
        return 0
    if not history.rows:
        print("none of the rules it counts has a finding in that span", file=sys.stderr)
        return 1
    outcomes = [evaluate_threshold(choice, history, settings) for choice in choices]
    _print(args.output, current, choices, outcomes, history)
    for line in _limits(source, current, outcomes, history):
        print(printable(line), file=sys.stderr)
    if args.write is None:
        return 0
    if not 1 <= args.write <= len(choices):
        raise Usage(f"--write {args.write}: there are {len(choices)} choices")
    chosen = choices[args.write - 1]
    # In the words that were asked with: what is compiled names columns, a rule names fields.
    written = next((f for f, each in groups.items() if each.group_by == chosen.group_by), None)
    return _write(args, settings, source, chosen, written)


def _require_whole(args: argparse.Namespace) -> None:
    given = [args.owner, args.reason]
    if args.summary and args.write is not None:
        raise Usage("--summary only shows; leave it out to --write")
    if args.write is None and any(given):
        raise Usage("--owner and --reason go with --write N")
    if args.write is not None and not all(text and text.strip() for text in given):
        raise Usage("--write needs --owner NAME and --reason TEXT")


def _choices(
    args: argparse.Namespace, grouped: Sequence[Correlation], current: Correlation
) -> list[Correlation]:
    """The choices in the order in which they are shown; the one in force is among the default."""
    from alerts.tuning.thresholds import (
        COUNT_TYPES,
        counts_around,
        threshold_choices,
        windows_around,
    )

    if args.count and current.type not in COUNT_TYPES:
        raise Usage(f"--count: a correlation of type {current.type} has no count of its own")
    if not (args.count or args.window or args.group_by):
        windows = [s for s in windows_around(current) if s != current.timespan_seconds]
        # Not each with each: two curves can be read, a plane of numbers cannot.
        return threshold_choices(
            [current], counts_around(current), [], current
        ) + threshold_choices([current], [], windows, current)
    return threshold_choices(grouped or [current], args.count, args.window, current)


def _grouped(settings: Settings, source: RuleSource, fields: str) -> Correlation:
    from alerts.tuning.threshold_file import changed_document, compiled_draft, rule_document

    document = changed_document(rule_document(source), group_by=_names(fields))
    # Compiled, not replaced: only the compiler knows which columns stand for a name.
    return compiled_draft(settings, document)


def _names(fields: str) -> list[str]:
    return [name.strip() for name in fields.split(",") if name.strip()]


def _confirmed(settings: Settings) -> Callable[[dict[str, Any]], bool]:
    """Whether job `alert` would count a finding, by the inventories as they are now."""
    from alerts.compiler.enrichment_predicates import Confirming, inventories
    from alerts.rulepack.locations import store_folder
    from alerts.rulepack.rule_pack import PackStore

    confirming = Confirming(PackStore(store_folder(settings)).get)
    index = inventories(settings)
    return lambda row: confirming.holds(row, index)


def _rows(
    current: Correlation,
    choices: Sequence[Correlation],
    outcomes: Sequence[ThresholdOutcome],
    history: ThresholdHistory,
) -> list[dict[str, Any]]:
    from alerts.tuning.thresholds import is_same, timespan_text

    return [
        {
            "choice": number,
            "now": is_same(choice, current),
            "count": choice.count,
            "window": timespan_text(choice.timespan_seconds),
            "window_seconds": choice.timespan_seconds,
            "group_by": ", ".join(choice.group_by),
            "fires": outcome.fires,
            "alerts": outcome.alerts,
            "alerts_a_day": history.per_day(outcome.alerts),
            "busiest_day": outcome.busiest,
            "true_kept": len(outcome.true_kept),
            "noise_kept": len(outcome.noise_kept),
        }
        for number, (choice, outcome) in enumerate(zip(choices, outcomes, strict=True), 1)
    ]


def _print(
    form: str,
    current: Correlation,
    choices: Sequence[Correlation],
    outcomes: Sequence[ThresholdOutcome],
    history: ThresholdHistory,
) -> None:
    # Where no choice tells of anything, the bars are empty and nothing is divided by zero.
    most = max([outcome.alerts for outcome in outcomes] + [1])
    rows = []
    for row in _rows(current, choices, outcomes, history):
        row.pop("window_seconds")
        if form in ("table", WIDE):
            row["curve"] = "#" * round(_BAR * row["alerts"] / most)
            row["now"] = "now" if row["now"] else ""
        rows.append(row)
    print_rows(rows, form, brief=_BRIEF)


def _limits(
    source: RuleSource,
    current: Correlation,
    outcomes: Sequence[ThresholdOutcome],
    history: ThresholdHistory,
) -> Iterator[str]:
    """What the figures rest on, and what they do not."""
    from alerts.domain.verdict import TRUE_VERDICTS
    from alerts.tuning.thresholds import unplaced_alerts

    true = sum(verdict in TRUE_VERDICTS for verdict, _ in history.judged.values())
    yield (
        f"{len(history.rows):,} findings counted, {history.days:.1f} days; judged: {true} true, "
        f"{len(history.judged) - true} noise"
    )
    if lost := unplaced_alerts(history):
        yield f"{len(lost)} judged alerts name no finding that is still there; none is kept"
    for number, outcome in enumerate(outcomes, 1):
        if outcome.passed_over:
            yield (
                f"choice {number}: {outcome.passed_over:,} findings lack what it groups by. "
                "Findings carry only what a correlation in force asked for when they were made; "
                "'headgate rules backtest FILE' matches the events again"
            )
    if not current.alerting:
        yield "it raises no alerts of its own today; counted as if it did"
    if not source.enabled:
        yield "it is switched off today"


def _write(
    args: argparse.Namespace,
    settings: Settings,
    source: RuleSource,
    chosen: Correlation,
    written: str | None,
) -> int:
    """Keep the choice; `written`: its group as it was asked for, None where it is the rule's."""
    from alerts.tuning.threshold_file import ThresholdWish, keep_threshold

    threshold_wish = ThresholdWish(args.owner, args.reason, acting_user())
    group_by = None if written is None else _names(written)
    _, path, pack, left_out = keep_threshold(settings, source, chosen, threshold_wish, group_by)
    if left_out:
        print(f"{left_out} of its tests do not hold with it and were left out", file=sys.stderr)
    print(
        printable(f"{path}: in force with rule pack {pack}; {args.rule} is switched off"),
        file=sys.stderr,
    )
    return 0
