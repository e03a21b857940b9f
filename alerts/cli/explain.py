"""`headgate explain`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
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
def asking(settings: Settings, tenants: Sequence[str] | None = None) -> Iterator[Ask]:
    """Questions to the lake through a DuckDB of its own; raises `Retryable` as it is read.

    `tenants`: all whose rows are there; None: every row.
    """
    from alerts.domain.tenant_rows import views_of
    from infra.delta.duckdb_views import AskedViews

    shown = tuple if tenants is None else partial(views_of, tenants)
    memory = settings.api.statement_memory
    with AskedViews(settings.lake_root, memory=memory, existing=shown) as views:
        yield views.rows


def differs(again: Mapping[str, Any]) -> bool:
    """Whether the rule that ran, or the address, says something else now."""
    verdicts = {again["by_its_rule"], again["attribution"]["verdict"]}
    return bool(verdicts & {"different", "no longer"})


def _text(explanation: Mapping[str, Any]) -> Iterator[str]:
    """An explanation for a terminal, line by line, not yet made printable."""
    alert, rule, lineage = explanation["alert"], explanation["rule"], explanation["lineage"]
    if explanation.get("damaged"):
        yield explanation["damaged"]
        yield ""
    yield alert["title"]
    findings = "1 finding" if alert["count"] == 1 else f"{alert['count']:,} findings"
    yield f"alert {alert['alert_id']}, revision {alert['revision']}, {findings}"
    yield ""
    changed = "" if rule["unchanged"] else "; the rule in force is another version"
    version = f", version {rule['version']}" if rule["version"] else ""
    yield f"rule {rule['title']} ({rule['id']}{version}{changed})"
    gone = "its pack is no longer in the store" if lineage["pack"] else "what it asked is not known"
    yield f"  {rule['condition'] or gone}"
    if rule["file"]:
        yield f"  {rule['file']}"
    yield ""
    for condition in explanation["matched"]:
        yield from _match(condition)
    yield ""
    yield _holder(explanation["attribution"])
    for line in explanation["attribution"].get("lines", ()):
        yield f"  {line['time']} {line['source']}: {line['message']}"
    yield ""
    yield f"rule pack {lineage['pack'] or 'not known: the row in gold.alert names none'}"
    for batch in lineage["batches"]:
        versions = ", ".join(f"{name} {v}" for name, v in sorted(batch["versions"].items()))
        yield f"  {batch['job']} batch {batch['batch_id']} at {batch['started_at']}: {versions}"
    if lineage["missing"]:
        yield f"  no longer in silver.event: {', '.join(lineage['missing'])}"
    yield ""
    yield explanation["evidence_sql"]
    if "again" in explanation:
        yield ""
        yield "again: " + json.dumps(explanation["again"])


def _match(one: Mapping[str, Any]) -> Iterator[str]:
    yield f"{one['time']} {one['rule_title']} (event {one['event_uid']})"
    if one.get("message"):
        yield f"  {one['message']}"
    if one.get("selections"):
        yield f"  selections: {', '.join(one['selections'])}"
    for reason in one.get("because", ()):
        values = ", ".join(reason["values"])
        values += f" and {reason['more']:,} more" if reason["more"] else ""
        yield f"  {reason['test']}" + (f"   <- {values}" if values else "")
    if one["kind"] != "event":
        fields = one["fields"] or {}
        yield "  " + ", ".join(f"{name} = {_value(value)}" for name, value in fields.items())


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _holder(attribution: Mapping[str, Any]) -> str:
    """Who held the address, and how surely: `attribution leased: 10.0.0.5 was lt-1 (02:..), lease
    from A to B, confidence 90 of 100`."""
    mac, name = attribution.get("mac"), attribution.get("hostname")
    start, end = attribution.get("lease_start"), attribution.get("lease_end")
    confidence = attribution.get("confidence")
    device = f"{name} ({mac})" if name and mac else name or mac
    line = f"attribution {attribution.get('status') or 'pending'}"
    line += f": {attribution['ip']}" if attribution.get("ip") else ""
    line += f" was {device}" if device else ""
    line += f", lease from {start}" if start else ""
    line += f" to {end}" if start and end else ""
    return line + (f", confidence {confidence} of 100" if confidence is not None else "")
