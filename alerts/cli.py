"""The commands of alerts: `headgate rules` and `headgate alerts`."""

from __future__ import annotations

import argparse
import csv
import getpass
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from alerts.attack import layer
from alerts.check import check
from alerts.compile import Compiled, compile_rules
from alerts.importing import as_json, as_text, look_through
from alerts.pack import Correlation, PackStore
from alerts.store import recompile, rule_folders, store_folder
from infra.cells import harmless, lines
from infra.errors import HeadgateError, Usage
from infra.instants import instant
from infra.settings import Settings, load

FORMATS = ("table", "json", "ndjson", "csv")
LEVELS = ("informational", "low", "medium", "high", "critical")
SPANS = {"m": "minutes", "h": "hours", "d": "days"}


def build(subparsers: Any) -> None:
    """Register the commands of this folder with the command line's subparsers."""
    rules = subparsers.add_parser("rules", help="list, test, switch rules on and off")
    verbs = rules.add_subparsers(dest="verb", required=True)

    listed = verbs.add_parser("list", help="all rules, and which are refused or switched off")
    listed.add_argument("--output", choices=FORMATS, default="table", help="how to print them")
    listed.set_defaults(run=list_rules)

    tested = verbs.add_parser("test", help="run the events that rules bring as their tests")
    tested.add_argument("rule", nargs="*", metavar="RULE", help="id or name; none: all rules")
    tested.add_argument("--output", choices=FORMATS, default="table", help="how to print them")
    tested.set_defaults(run=test_rules)

    seen = verbs.add_parser("preview", help="what a rule finds in events that are already there")
    seen.add_argument("rule", metavar="RULE", help="id or name, or the file of a draft")
    seen.add_argument("--since", default="24h", help="an instant, or 90m, 24h, 7d (default: 24h)")
    seen.add_argument("--limit", type=int, default=20, help="most findings (default: 20)")
    seen.add_argument("--output", choices=FORMATS, default="table", help="how to print them")
    seen.set_defaults(run=preview_rule)

    imported = verbs.add_parser("import", help="look through a folder of public rules")
    imported.add_argument("folder", type=Path, metavar="DIR", help="a clone, or a part of it")
    imported.add_argument(
        "--into", type=Path, metavar="DIR", help="copy the rules that load here, with their licence"
    )
    imported.add_argument("--output", choices=("text", "json"), default="text")
    imported.set_defaults(run=import_rules)

    covered = verbs.add_parser(
        "coverage", help="the rules in force as a layer of the ATT&CK Navigator (JSON, on stdout)"
    )
    covered.set_defaults(run=show_coverage)

    enabled = verbs.add_parser("enable", help="switch a rule on, from the next micro-batch")
    enabled.add_argument("rule", metavar="RULE", help="id or name")
    enabled.set_defaults(run=enable_rule)

    disabled = verbs.add_parser("disable", help="switch a rule off, from the next micro-batch")
    disabled.add_argument("rule", metavar="RULE", help="id or name")
    disabled.add_argument("--reason", default="", help="why, for those who wonder later")
    disabled.set_defaults(run=disable_rule)
    _build_alerts(subparsers)


def _build_alerts(subparsers: Any) -> None:
    alerts = subparsers.add_parser("alerts", help="read alerts from the topic or the table")
    verbs = alerts.add_subparsers(dest="verb", required=True)

    tailed = verbs.add_parser("tail", help="alerts as they come on the topic, until Ctrl-C")
    tailed.add_argument(
        "--from", dest="begin", choices=("beginning", "now"), default="now", help="where to begin"
    )
    tailed.add_argument("--output", choices=("line", "json"), default="line")
    tailed.set_defaults(run=tail_alerts)

    listed = verbs.add_parser("list", help="alerts in their newest revision, newest event first")
    listed.add_argument("--level", action="append", choices=LEVELS, help="one, or several times")
    listed.add_argument("--since", help="newest event since: 2026-11-20T00:00:00Z, or 90m, 24h, 7d")
    listed.add_argument("--entity", help="MAC address, address, host or user it is about")
    listed.add_argument("--limit", type=int, default=50, help="most alerts (default: 50)")
    listed.add_argument("--output", choices=FORMATS, default="table")
    listed.set_defaults(run=list_alerts)

    shown = verbs.add_parser("show", help="one alert whole, and all its revisions")
    shown.add_argument("id", metavar="ID", help="alert_id, or its first characters")
    shown.add_argument("--output", choices=("text", "json"), default="text")
    shown.set_defaults(run=show_alert)

    closed = verbs.add_parser("close", help="ask that an alert be closed")
    closed.add_argument("id", metavar="ID", help="alert_id, or its first characters")
    closed.add_argument("--verdict", help="what it was: true_positive, false_positive, benign, ...")
    closed.add_argument("--comment", help="why, for those who read it later")
    closed.set_defaults(run=close_alert)


def tail_alerts(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate alerts tail`: one revision a line; Ctrl-C is its ordinary end."""
    from alerts.read import tail
    from infra.topic import Heard

    def hear(heard: Heard) -> None:
        print(json.dumps(heard.body) if args.output == "json" else heard.line(), flush=True)

    try:
        tail(settings, hear, args.begin)
    except KeyboardInterrupt:
        return 0
    return 0


def list_alerts(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate alerts list`: what a limit leaves out is said on stderr."""
    from alerts.read import Wanted, newest

    if args.limit < 1:
        raise Usage(f"--limit {args.limit}: must be at least 1")
    since = since_when(args.since, datetime.now(UTC)) if args.since else None
    wanted = Wanted(tuple(args.level or ()), since, args.entity, args.limit)
    rows, more = newest(settings, wanted)
    _print(rows, args.output)
    if more:
        print(f"the newest {len(rows)}; there are more (--limit)", file=sys.stderr)
    return 0


def show_alert(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate alerts show ID`."""
    from alerts.read import detail

    found = detail(settings, args.id)
    if args.output == "json":
        print(json.dumps({"alert": found.body, "revisions": found.revisions}, indent=2))
        return 0
    # JSON escapes what could steer a terminal.
    print(json.dumps(found.body, indent=2))
    print()
    _print(found.revisions, "table")
    return 0


def close_alert(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate alerts close ID`: leaves a request that job `alert` makes a revision."""
    from alerts.read import close

    request = close(settings, args.id, args.verdict, args.comment)
    print(
        f"asked to close alert {request['alert_id']}; "
        "the running driver takes it within seconds, else at its next start",
        file=sys.stderr,
    )
    return 0


def since_when(text: str, now: datetime) -> datetime:
    """An instant with its zone, or a span before `now` such as 90m, 24h or 7d; else `Usage`."""
    alternative = ", or a span such as 24h"
    if text[-1:] in SPANS and text[:-1].isdecimal():
        try:
            return now - timedelta(**{SPANS[text[-1]]: int(text[:-1])})
        except OverflowError:
            raise Usage(f"--since {text}: write an instant{alternative}") from None
    return instant("--since", text, alternative)


def list_rules(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules list`: exit code 1 when a rule is refused."""
    compiled = _compiled(settings)
    switches = PackStore(store_folder(settings)).disabled()
    rows = []
    for rule_id, source in compiled.sources.items():
        rule = source.rule
        off = switches.get(rule_id)
        rows.append(
            {
                "id": rule_id,
                "name": rule.name,
                "level": rule.level,
                "kind": rule.type if isinstance(rule, Correlation) else "rule",
                "state": f"off ({off.who}: {off.reason})" if off else "on",
                "alerts": "yes" if rule.alerting else "no",
                "title": rule.title,
            }
        )
    _print(rows, args.output)
    return _tell_refused(compiled)


def test_rules(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules test`: exit code 1 when a test fails or a rule is refused."""
    compiled = _compiled(settings)
    outcomes = check(compiled, {_id_of(compiled, rule) for rule in args.rule})
    failed = [outcome for outcome in outcomes if not outcome.passed]
    rows = [
        {
            "id": outcome.rule_id,
            "title": outcome.title,
            "event": outcome.number,
            "must": "match" if outcome.must_match else "not match",
            "passed": outcome.passed,
            "detail": outcome.detail,
        }
        for outcome in (outcomes if args.output != "table" else failed)
    ]
    if rows or args.output != "table":
        _print(rows, args.output)
    print(f"{len(outcomes) - len(failed)} of {len(outcomes)} tests passed", file=sys.stderr)
    refused = _tell_refused(compiled) if not args.rule else 0
    return 1 if failed else refused


def preview_rule(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules preview RULE`: nothing is kept, no alert is made."""
    from alerts.preview import draft, known, preview
    from infra.duck import connect

    if args.limit < 1:
        raise Usage(f"--limit {args.limit}: must be at least 1")
    path = Path(args.rule)
    if path.is_file():
        rule = draft(path)
    else:
        compiled = _compiled(settings)
        rule = known(compiled, _id_of(compiled, args.rule))
    since = since_when(args.since, datetime.now(UTC))
    connection = connect(settings.lake_root, needs=("silver.event",))
    try:
        found, looked_at = preview(connection, rule, since, args.limit)
    finally:
        connection.close()
    shown = ("source", "ip", "user_name", "host_name", "event_uid", "snippet")
    _print(
        [
            {"event_time": row["event_time"].isoformat()} | {name: row[name] for name in shown}
            for row in found
        ],
        args.output,
    )
    print(f"{len(found)} findings in {looked_at} events of its log source", file=sys.stderr)
    return 0


def import_rules(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules import DIR`: exit code 1 when not one rule loads."""
    report = look_through(args.folder, settings.sources, args.into)
    if args.output == "json":
        print(json.dumps(as_json(report), indent=2))
    else:
        for line in as_text(report):
            print(harmless(line))
    if args.into is not None:
        print(
            f"{report.copied} files copied to {args.into}; they run once alerts.rules names it",
            file=sys.stderr,
        )
    return 0 if report.loaded else 1


def show_coverage(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules coverage`: what is switched off is not in it."""
    pack = _compiled(settings).pack
    rules = [(rule.title, rule.techniques) for rule in (*pack.rules, *pack.correlations)]
    print(json.dumps(layer(rules), indent=2))
    return 0


def enable_rule(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules enable RULE`."""
    rule_id = _id_of(_compiled(settings), args.rule)
    if not PackStore(store_folder(settings)).enable(rule_id):
        print(f"rule {rule_id} was on already", file=sys.stderr)
    return _put_in_force(settings)


def disable_rule(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules disable RULE`."""
    rule_id = _id_of(_compiled(settings), args.rule)
    PackStore(store_folder(settings)).disable(rule_id, getpass.getuser(), args.reason)
    return _put_in_force(settings)


def _put_in_force(settings: Settings) -> int:
    pack = recompile(settings).pack
    count = len(pack.rules) + len(pack.correlations)
    print(f"rule pack {pack.hash} with {count} rules is in force", file=sys.stderr)
    return 0


def _compiled(settings: Settings) -> Compiled:
    disabled = PackStore(store_folder(settings)).disabled()
    return compile_rules(rule_folders(settings), disabled=disabled, levels=settings.alerts.levels)


def _id_of(compiled: Compiled, rule: str) -> str:
    """The id of a rule given by id or name; raises `Usage`."""
    for rule_id, source in compiled.sources.items():
        if rule in (rule_id, source.rule.name):
            return rule_id
    for refused in compiled.refused:
        if refused.rule == rule:
            raise Usage(f"rule '{rule}' is refused: {refused.reason}; {refused.remedy}")
    raise Usage(f"no rule '{rule}'; 'headgate rules list' shows them")


def _tell_refused(compiled: Compiled) -> int:
    for refused in compiled.refused:
        print(
            f"refused: {refused.rule} ({refused.path}): {refused.reason}; {refused.remedy}",
            file=sys.stderr,
        )
    return 1 if compiled.refused else 0


def _print(rows: Sequence[Mapping[str, Any]], output: str) -> None:
    if output == "json":
        print(json.dumps(list(rows), indent=2))
    elif output == "ndjson":
        for row in rows:
            print(json.dumps(row))
    elif output == "csv":
        writer = csv.DictWriter(sys.stdout, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows({name: harmless(value) for name, value in row.items()} for row in rows)
    else:
        for line in lines(list(rows[0]) if rows else [], rows):
            print(line)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `rules ...` or `alerts ...` by itself, with the settings of this folder."""
    parser = argparse.ArgumentParser(prog="headgate")
    build(parser.add_subparsers(dest="command", required=True))
    args = parser.parse_args(argv)
    try:
        code: int = args.run(args, load())
    except HeadgateError as error:
        print(f"headgate: {error}", file=sys.stderr)
        return error.exit_code
    return code


if __name__ == "__main__":
    sys.exit(main())
