"""The commands of alerts: `headgate rules`."""

from __future__ import annotations

import argparse
import csv
import getpass
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from alerts.check import check
from alerts.compile import Compiled, compile_rules
from alerts.pack import Correlation, PackStore
from alerts.store import recompile, rule_folders, store_folder
from infra.errors import HeadgateError, Usage
from infra.settings import Settings, load

FORMATS = ("table", "json", "ndjson", "csv")


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

    enabled = verbs.add_parser("enable", help="switch a rule on, from the next micro-batch")
    enabled.add_argument("rule", metavar="RULE", help="id or name")
    enabled.set_defaults(run=enable_rule)

    disabled = verbs.add_parser("disable", help="switch a rule off, from the next micro-batch")
    disabled.add_argument("rule", metavar="RULE", help="id or name")
    disabled.add_argument("--reason", default="", help="why, for those who wonder later")
    disabled.set_defaults(run=disable_rule)


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
        writer.writerows(rows)
    else:
        _print_table(rows)


def _print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    if not rows:
        return
    names = list(rows[0])
    widths = {n: max(len(n), *(len(str(row[n])) for row in rows)) for n in names}
    for row in [dict(zip(names, names, strict=True)), *rows]:
        print("  ".join(str(row[name]).ljust(widths[name]) for name in names).rstrip())


def main(argv: Sequence[str] | None = None) -> int:
    """Run `rules ...` by itself, with the settings of this folder."""
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
