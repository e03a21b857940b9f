"""`headgate explain`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from infra.config.settings import Settings
from infra.errors import Usage
from infra.process.table_output import print_document, print_lines

if TYPE_CHECKING:
    from alerts.backtest.rerun import Ask


def build(subparsers: Any) -> None:
    """Add `explain` to the command."""
    explained = subparsers.add_parser(
        "explain", help="why an alert is there: rule, values that matched, evidence, versions"
    )
    explained.add_argument("id", metavar="ALERT_ID", help="alert_id, or its first characters")
    explained.add_argument(
        "--finding",
        action="store_true",
        help="the id is a finding's: whether it counts, and what its rule wants confirmed",
    )
    explained.add_argument(
        "--again",
        action="store_true",
        help="run the rule again on its events as they are now, and look the address up anew",
    )
    explained.add_argument("--output", choices=("text", "json"), default="text")
    explained.set_defaults(run=_explain_alert)


def _explain_alert(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate explain ID`: exit code 1 when `--again` finds something different."""
    from alerts.delivery.alert_id import ALERTS_NEED, alert_id_of
    from alerts.explain.explain import explain

    if args.finding:
        return _explain_finding(args, settings)

    with asking(settings) as ask:
        alert_id = alert_id_of(partial(ask, needs=ALERTS_NEED), args.id)
        explanation = explain(ask, settings, alert_id, again=args.again)
    if explanation is None:
        raise Usage(f"no alert '{args.id}'; 'headgate alerts list' shows them")
    if args.output == "json":
        print_document(explanation, indent=2)
    else:
        # Rules and events are written by others: nothing of theirs may steer the terminal.
        print_lines(_text(explanation))
    again = explanation.get("again")
    return 1 if again and differs(again) else 0


def _explain_finding(args: argparse.Namespace, settings: Settings) -> int:
    from alerts.explain.finding import explain_finding, finding_text

    with asking(settings) as ask:
        explanation = explain_finding(ask, settings, args.id)
    if explanation is None:
        raise Usage(f"no finding '{args.id}'; gold.finding has them")
    if args.output == "json":
        print_document(explanation, indent=2)
    else:
        print_lines(finding_text(explanation))
    return 0


@contextmanager
def asking(settings: Settings) -> Iterator[Ask]:
    """Questions to the lake through a DuckDB of its own; raises `Retryable` as it is read."""
    from infra.delta.duckdb_views import AskedViews

    with AskedViews(settings.lake_root, memory=settings.api.statement_memory) as views:
        yield views.rows


def differs(again: Mapping[str, Any]) -> bool:
    """Whether the rule that ran, or the address, says something else now."""
    verdicts = {again["by_its_rule"], again["attribution"]["verdict"]}
    return bool(verdicts & {"different", "no longer"})


def _text(told: Mapping[str, Any]) -> Iterator[str]:
    """An explanation for a terminal, line by line, not yet made printable."""
    alert, rule, lineage = told["alert"], told["rule"], told["lineage"]
    yield alert["title"]
    yield f"alert {alert['alert_id']}, revision {alert['revision']}, {alert['count']} findings"
    yield ""
    changed = "" if rule["unchanged"] else "; the rule in force is another version"
    version = f", version {rule['version']}" if rule["version"] else ""
    yield f"rule {rule['title']} ({rule['id']}{version}{changed})"
    yield f"  {rule['condition'] or 'its pack is no longer in the store'}"
    if rule["file"]:
        yield f"  {rule['file']}"
    yield ""
    for condition in told["matched"]:
        yield from _match(condition)
    yield ""
    yield "attribution " + json.dumps(_brief(told["attribution"]))
    for line in told["attribution"].get("lines", ()):
        yield f"  {line['time']} {line['source']}: {line['message']}"
    yield ""
    yield f"rule pack {lineage['pack']}"
    for batch in lineage["batches"]:
        versions = ", ".join(f"{name} {v}" for name, v in sorted(batch["versions"].items()))
        yield f"  {batch['job']} batch {batch['batch_id']} at {batch['started_at']}: {versions}"
    if lineage["missing"]:
        yield f"  no longer in silver.event: {', '.join(lineage['missing'])}"
    yield ""
    yield told["evidence_sql"]
    if "again" in told:
        yield ""
        yield "again: " + json.dumps(told["again"])


def _match(one: Mapping[str, Any]) -> Iterator[str]:
    yield f"{one['time']} {one['rule_title']} (event {one['event_uid']})"
    if one.get("message"):
        yield f"  {one['message']}"
    if one.get("selections"):
        yield f"  selections: {', '.join(one['selections'])}"
    for reason in one.get("because", ()):
        values = ", ".join(reason["values"])
        yield f"  {reason['test']}" + (f"   <- {values}" if values else "")
    if one["kind"] != "event":
        yield f"  {json.dumps(one['fields'])}"


def _brief(attribution: Mapping[str, Any]) -> dict[str, Any]:
    names = ("status", "ip", "mac", "hostname", "lease_start", "lease_end", "confidence")
    return {n: attribution[n] for n in names if attribution.get(n) is not None}
