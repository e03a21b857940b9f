"""`headgate rules packs` and `rollback`: versions of packs, and the way back."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from alerts.cli.rulebook.imports import tell_plan, tell_put, tell_rules
from alerts.rollout.pack_list import list_packs, pack_folder
from alerts.rollout.pack_update import plan_rollback, put_version
from alerts.rollout.pack_versions import PackVersions, again, former_version
from alerts.rulebook.rule_choice import every_source
from alerts.rulebook.rule_store import read_rule_files
from infra.config.settings import Settings
from infra.errors import Usage
from infra.process.os_user import acting_user
from infra.process.table_output import add_output_option, print_rows


def build(verbs: Any) -> None:
    """Add `packs` and `rollback` below `headgate rules`."""
    packs = verbs.add_parser(
        "packs", help="packs of rules with version and origin; one's versions by its name"
    )
    packs.add_argument("pack", nargs="?", metavar="PACK", help="name or folder of a pack")
    add_output_option(packs)
    packs.set_defaults(run=show_packs)

    back = verbs.add_parser("rollback", help="put the former version of a pack back")
    back.add_argument("pack", metavar="PACK", help="name or folder of a pack")
    back.add_argument("--to", default="", metavar="VERSION", help="(default: the one before)")
    back.add_argument("--reason", default="", help="why, for those who wonder later")
    back.add_argument("--yes", action="store_true", help="do it; without, it is only shown")
    back.set_defaults(run=roll_back)


def show_packs(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules packs`."""
    if args.pack is None:
        items = [
            asdict(item) for item in list_packs(settings, every_source(read_rule_files(settings)))
        ]
        print_rows([row | {"imported": _when(row["imported"])} for row in items], args.output)
        return 0
    versions = PackVersions(settings).of(pack_folder(settings, args.pack))
    rows = [
        {
            "version": each.version,
            "taken": _when(each.taken),
            "act": each.act,
            "by": each.who,
            "source": each.source,
            "only": each.only,
            "files": len(each.files),
            "reason": each.reason,
        }
        for each in reversed(versions)
    ]
    print_rows(rows, args.output)
    return 0


def roll_back(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules rollback PACK`: what was edited here stays."""
    folder = pack_folder(settings, args.pack)
    versions = PackVersions(settings).of(folder)
    target = former_version(versions, folder, args.to)
    plan = plan_rollback(settings, folder, target)
    taken = again(target, acting_user(), args.reason)
    tell_plan(plan, versions, taken)
    if not args.yes:
        tell_rules(plan)
        raise Usage("nothing is done yet: add --yes to go back")
    tell_put(settings, plan, put_version(settings, plan, taken), 0)
    return 0


def _when(moment: Any) -> str:
    return moment.isoformat() if moment else ""
