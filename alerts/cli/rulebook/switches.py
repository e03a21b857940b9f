"""`headgate rules enable` and `disable`: one rule, several, or all that are alike in something."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from alerts.compiler.rule_header import STATUSES
from alerts.domain.levels import LEVELS
from alerts.rulebook.rule_choice import AnySource, RuleCriteria, chosen_rules
from alerts.rulebook.rule_store import read_rule_files
from alerts.rulebook.rule_switch import SwitchedRules, switch_off, switch_on, switch_rules
from alerts.rulepack.rule_pack import RulePack
from infra.config.settings import Settings
from infra.errors import Usage
from infra.process.os_user import acting_user
from infra.process.table_output import add_output_option, print_rows


def build(verbs: Any) -> None:
    """Add `enable` and `disable` below `headgate rules`."""
    for verb, way in (("enable", "on"), ("disable", "off")):
        parser = verbs.add_parser(verb, help=f"switch rules {way}, from the next micro-batch")
        parser.add_argument("rule", nargs="*", metavar="RULE", help="id or name")
        add_criteria(parser)
        parser.add_argument(
            "--pack", default="", metavar="NAMES", help="folders of alerts.rules, or bundled"
        )
        parser.add_argument("--dry-run", action="store_true", help="only list what would change")
        parser.add_argument("--yes", action="store_true", help="do it to all that are like that")
        add_output_option(parser)
        parser.set_defaults(run=enable_rules if verb == "enable" else disable_rules)
        if verb == "disable":
            parser.add_argument("--reason", default="", help="why, for those who wonder later")


def add_criteria(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose rules by what their files say; values stand behind commas."""
    shown = {
        "tag": "such as attack.t1059, with all below it",
        "level": f"of {', '.join(LEVELS)}",
        "status": f"of {', '.join(STATUSES)}",
        "product": "of the log source, such as windows,linux",
    }
    for name, words in shown.items():
        parser.add_argument(f"--{name}", default="", metavar=f"{name.upper()},...", help=words)


def criteria_of(args: argparse.Namespace) -> RuleCriteria:
    """What these options ask for; raises `Usage` for a level or status that is none."""
    return RuleCriteria(
        tags=_values(args.tag),
        levels=_values(args.level),
        statuses=_values(args.status),
        products=_values(args.product),
        packs=_values(getattr(args, "pack", "")),
    )


def _values(text: str) -> tuple[str, ...]:
    return tuple(value.strip() for value in text.split(",") if value.strip())


def enable_rules(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules enable`: also lets rules run again that were set aside."""
    if not _is_single(args):
        return _switch_several(args, settings, on=True)
    pack, changed = switch_on(settings, args.rule[0])
    if not changed:
        print(f"rule {args.rule[0]} was on already", file=sys.stderr)
    return tell_in_force(pack)


def disable_rules(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules disable`."""
    if not _is_single(args):
        return _switch_several(args, settings, on=False)
    return tell_in_force(switch_off(settings, args.rule[0], acting_user(), args.reason))


def _is_single(args: argparse.Namespace) -> bool:
    criteria = criteria_of(args)
    if not args.rule and not criteria:
        raise Usage("name rules, or say which with --tag, --level, --status, --product or --pack")
    return len(args.rule) == 1 and not criteria and not args.dry_run


def _switch_several(args: argparse.Namespace, settings: Settings, *, on: bool) -> int:
    files, criteria = read_rule_files(settings), criteria_of(args)
    chosen = chosen_rules(files, args.rule, criteria)
    reason = "" if on else args.reason
    looked = switch_rules(files, list(chosen), acting_user(), reason, on=on, dry=True)
    way = "on" if on else "off"
    already = len(looked.chosen) - len(looked.changed)
    print(
        f"rules chosen: {len(looked.chosen)}; {len(looked.changed)} to switch {way}, "
        f"{already} are {way} already",
        file=sys.stderr,
    )
    if args.dry_run:
        print_rows(_rows(looked, chosen), args.output)
        return 0
    # Who names rules knows how many they are; who describes them may mean fewer.
    if criteria and looked.changed and not args.yes:
        raise Usage("look which they are with --dry-run first, then add --yes")
    done = switch_rules(files, list(chosen), acting_user(), reason, on=on, dry=False)
    return 0 if done.pack is None else tell_in_force(done.pack)


def _rows(looked: SwitchedRules, chosen: Mapping[str, AnySource]) -> list[dict[str, str]]:
    rules = [chosen[rule_id].rule for rule_id in looked.changed]
    return [{"id": r.id, "name": r.name, "level": r.level, "title": r.title} for r in rules]


def tell_in_force(pack: RulePack) -> int:
    """Say which pack is in force; exit code 0."""
    count = sum(map(len, (pack.rules, pack.correlations, pack.queries, pack.models)))
    print(f"rule pack {pack.hash} with {count} rules is in force", file=sys.stderr)
    return 0
