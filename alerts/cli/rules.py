"""`headgate rules list`, `preview`, `reach` and `navigator`."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from alerts.cli import coverage, spark_rules
from alerts.cli.output import since_when, tell_refused_models
from alerts.compiler.compiler import Compiled, compile_rules
from alerts.domain.attack import layer
from alerts.rulebook.rule_store import model_rules
from alerts.rulebook.rule_switch import (
    compiled_rules,
    rule_id_of,
    rule_rows,
)
from alerts.rulepack.rule_pack import Query
from infra.config.number_args import whole
from infra.config.settings import Settings
from infra.errors import Usage
from infra.process.table_output import WIDE, add_output_option, print_document, print_rows
from infra.process.text_output import printable

_BRIEF = ("name", "level", "kind", "state", "alerts", "sees", "title")
"""Columns of the list that a person looks at first."""

OTHERS = ("crowdstrike", "defender_endpoint")
"""Sources of `alerts.reach.reach.OF_SEVERAL`, which takes long to import."""


def build(verbs: Any) -> None:
    """Add the verbs that look at rules below `headgate rules`."""
    listed = verbs.add_parser("list", help="all rules, and which are refused or switched off")
    add_output_option(listed, WIDE)
    listed.set_defaults(run=list_rules)

    seen = verbs.add_parser("preview", help="what a rule finds in events that are already there")
    seen.add_argument("rule", metavar="RULE", help="id or name, or the file of a draft")
    seen.add_argument("--since", default="24h", help="an instant, or 90m, 24h, 7d (default: 24h)")
    seen.add_argument("--limit", type=whole(), default=20, help="most findings (default: 20)")
    add_output_option(seen)
    seen.add_argument(
        "--summary", action="store_true", help="one JSON document: counts by time, and findings"
    )
    seen.set_defaults(run=preview_rule)

    reached = verbs.add_parser(
        "reach", help="can each rule fire? An event in its product's form is parsed and matched"
    )
    reached.add_argument("folder", nargs="*", type=Path, metavar="DIR", help="none: rules in force")
    reached.add_argument("--all", action="store_true", help="also rules that fire")
    reached.add_argument(
        "--source", choices=OTHERS, help="only rules that it feeds beside others, on its events"
    )
    add_output_option(reached)
    reached.set_defaults(run=reach_rules)

    covered = verbs.add_parser(
        "navigator", help="the rules in force as a layer of the ATT&CK Navigator (JSON, on stdout)"
    )
    covered.set_defaults(run=show_navigator)


def list_rules(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules list`: exit code 1 when a rule is refused."""
    compiled, models = compiled_rules(settings), model_rules(settings)
    rows = rule_rows(settings, compiled, models, coverage.known_blindness(settings))
    rows.sort(key=lambda row: (row["name"] or row["title"]).casefold())
    print_rows(rows, args.output, brief=_BRIEF)
    return max(_tell_refused(compiled), tell_refused_models(models.refused))


def preview_rule(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules preview RULE`: nothing is kept, no alert is made."""
    from alerts.backtest.correlation_preview import preview_over_events
    from alerts.cli import models as models_cli
    from alerts.rulebook.preview import PreviewCounts, draft, shown_row

    if models_cli.among(settings, [args.rule]):
        if args.summary:
            raise Usage(f"--summary: '{args.rule}' is a rule of kind model; leave it out")
        return models_cli.model_summary(
            settings, args.rule, args.since, None, args.output, args.limit
        )
    path = Path(args.rule)
    since = since_when(args.since, datetime.now(UTC))
    if path.is_file():
        rule, drafted = draft(path, settings)
    else:
        compiled, drafted = compiled_rules(settings), None
        rule = compiled.sources[rule_id_of(compiled, args.rule)].rule
    if isinstance(rule, Query):
        rows, total, looked_at = spark_rules.preview_spark_rule(settings, rule, since, args.limit)
        counts = PreviewCounts(rows, total, looked_at, timedelta(0), {})
    else:
        counts = preview_over_events(settings, rule, since, args.limit, drafted)
    shown = [shown_row(row) for row in counts.shown]
    if args.summary:
        by_time = {begin.isoformat(): many for begin, many in counts.by_time.items()}
        document = {"since": since.isoformat(), "findings": counts.findings,
                    "events": counts.events, "step_seconds": int(counts.step.total_seconds()),
                    "counted": counts.counted, "notes": counts.notes,
                    "by_time": by_time, "shown": shown}  # fmt: skip
        print_document(document)
        return 0
    print_rows(shown, args.output)
    left = counts.findings > len(shown)
    of = "its log source" if counts.counted is None else "the rules it counts"
    print(
        f"{counts.findings:,} findings in {counts.events:,} events of {of}"
        + ("" if counts.counted is None else f" and {counts.counted:,} findings of these")
        + (f"; the first {len(shown)} are shown (--limit)" if left else ""),
        file=sys.stderr,
    )
    for note in counts.notes:
        print(note, file=sys.stderr)
    return 0


def reach_rules(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules reach`: exit code 1 when a rule cannot fire."""
    from alerts.reach.reach import reach_of

    for folder in args.folder:
        if not folder.exists():
            raise Usage(f"{folder}: no such folder or file of rules")
    compiled = compile_rules(args.folder) if args.folder else compiled_rules(settings)
    reached = reach_of(compiled, args.source)
    shown = [reach for reach in reached if args.all or reach.state != "fires" or reach.reason]
    rows = [
        {
            "id": reach.rule.id,
            "title": reach.rule.title,
            "state": reach.state,
            "reason": reach.reason,
            "record": reach.record.decode("utf-8", "replace") if args.output != "table" else "",
        }
        for reach in shown
    ]
    if args.output == "table":
        rows = [{name: row[name] for name in ("id", "title", "state", "reason")} for row in rows]
    if rows or args.output != "table":
        print_rows(rows, args.output)
    count = Counter(reach.state for reach in reached)
    print(
        f"{count['fires']} rules fire on an event made for them, {count['dead']} cannot, "
        f"{count['untried']} were not tried",
        file=sys.stderr,
    )
    return 1 if count["dead"] else 0


def show_navigator(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules navigator`: what is switched off is not in it."""
    pack = compiled_rules(settings).pack
    every = (*pack.rules, *pack.correlations, *pack.queries, *model_rules(settings).running)
    rules = [(rule.title, rule.techniques) for rule in every]
    print(json.dumps(layer(rules), indent=2))
    return 0


def _tell_refused(compiled: Compiled) -> int:
    for refused in compiled.refused:
        # A rule is what strangers publish: its words must not steer the terminal.
        line = f"refused: {refused.rule} ({refused.path}): {refused.reason}; {refused.remedy}"
        print(printable(line), file=sys.stderr)
    return 1 if compiled.refused else 0
