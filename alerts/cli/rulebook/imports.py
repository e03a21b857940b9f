"""`headgate rules import`: a folder of public rules looked through, and put in place as a pack."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from alerts.cli import spark_rules
from alerts.cli.rulebook.switches import add_criteria, criteria_of, tell_in_force
from alerts.rollout.pack_plan import ADDED, CHANGED, KEPT, REMOVED, PackPlan
from alerts.rollout.pack_update import PackPut, plan_version, put_version, require_new_name
from alerts.rollout.pack_versions import PackVersion, PackVersions, new_pack_version
from alerts.rollout.shadow import ShadowWish
from alerts.rulebook.public_rules import (
    Report,
    files_to_take,
    look_through,
    summary_json,
    summary_text,
)
from alerts.rulebook.rule_packs import every_pack
from infra.config.settings import Settings
from infra.errors import Usage
from infra.process.os_user import acting_user
from infra.process.text_output import printable

_SHOWN = 100
"""Rules that a plan lists for a person; `--output json` has all."""


def build(verbs: Any) -> None:
    """Add `import` below `headgate rules`."""
    parser = verbs.add_parser(
        "import", help="look through a folder of public rules, or put a Python rule in force"
    )
    parser.add_argument(
        "folder", type=Path, metavar="DIR|FILE.py", help="a clone, a part of it, or a function"
    )
    parser.add_argument(
        "--into", type=Path, metavar="DIR", help="copy the rules that load here, with their licence"
    )
    add_criteria(parser)
    parser.add_argument("--version", default="", help="what it is called (default: by its content)")
    parser.add_argument(
        "--shadow", type=int, metavar="DAYS",
        help="try what is new or changed for so long first: 'rules promote' lets it alert",
    )  # fmt: skip
    parser.add_argument("--reason", default="", help="why, for those who wonder later")
    parser.add_argument("--dry-run", action="store_true", help="only show what would change")
    parser.add_argument("--yes", action="store_true", help="change what is there already")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    parser.set_defaults(run=import_rules)


def import_rules(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules import DIR|FILE.py`: exit code 1 when not one rule of a folder loads."""
    if args.folder.suffix == ".py" and args.folder.is_file():
        return spark_rules.import_function(args, settings)
    if args.into is None and (args.shadow is not None or args.version):
        raise Usage("--shadow and --version are of a pack: say where it lies with --into")
    shadow_wish = (
        None if args.shadow is None else ShadowWish(acting_user(), args.reason, args.shadow)
    )
    # The next look at the folder would find the copies as rules with ids that are taken.
    if args.into is not None and args.into.resolve().is_relative_to(args.folder.resolve()):
        raise Usage(f"--into {args.into}: lies inside {args.folder}; give a folder of your own")
    report = look_through(args.folder, settings.sources, criteria_of(args))
    document = summary_json(report)
    if args.output == "text":
        for line in summary_text(report):
            print(printable(line))
    if args.into is not None:
        document |= _update(args, settings, report, shadow_wish)
    if args.output == "json":
        print(json.dumps(document, indent=2))
    return 0 if report.loaded else 1


def _update(
    args: argparse.Namespace, settings: Settings, report: Report, shadow_wish: ShadowWish | None
) -> dict[str, Any]:
    """Plan, tell and, unless it is only looked at, do it; what `--output json` says of it."""
    files, versions = files_to_take(report), PackVersions(settings).of(args.into)
    plan = plan_version(settings, args.into, files, report.compiled, args.folder)
    taken = new_pack_version(
        *(files, args.version, str(args.folder.resolve()), acting_user(), args.reason),
        *("imported", _only(args)),
    )
    require_new_name(versions, taken)
    tell_plan(plan, versions, taken)
    anew = all(change.act == ADDED for change in plan.file_changes)
    if not anew and (args.dry_run or not args.yes) and args.output == "text":
        tell_rules(plan)
    document = {"update": plan_json(plan, taken)}
    if args.dry_run or _is_last(versions, taken, plan):
        return document
    # A first import overwrites nothing; an update changes what is in force.
    if not anew and not plan.empty and not args.yes:
        raise Usage("look at what would change first (--dry-run), then add --yes")
    put = put_version(settings, plan, taken, shadow_wish)
    tell_put(settings, plan, put, shadow_wish.days if shadow_wish else 0)
    written = sum(c.act in (ADDED, CHANGED) and c.path.endswith((".yml", ".yaml"))
                  for c in plan.file_changes)  # fmt: skip
    return document | {"copied_files": written}


def _only(args: argparse.Namespace) -> str:
    """The criteria as they were given; empty: all rules."""
    names = ("tag", "level", "status", "product")
    return " ".join(f"--{name} {getattr(args, name)}" for name in names if getattr(args, name))


def _is_last(known: list[PackVersion], taken: PackVersion, plan: PackPlan) -> bool:
    last = known[-1] if known else None
    same = last is not None and (last.version, last.content) == (taken.version, taken.content)
    return same and plan.empty


def tell_plan(plan: PackPlan, versions: list[PackVersion], taken: PackVersion) -> None:
    """Say what a version would change, in numbers."""
    last = versions[-1] if versions else None
    way = f"version {last.version} -> {taken.version}" if last else f"version {taken.version}"
    print(printable(f"{plan.folder}: {way}: {_counts(plan)}"), file=sys.stderr)
    if last is not None and last.only != taken.only:
        before = last.only or "all rules"
        print(f"before, {before} were taken; now {taken.only or 'all rules'}", file=sys.stderr)
    if last is None and any(change.act == CHANGED for change in plan.file_changes):
        print(
            "no import into it is on record: what was edited there is not told apart; it becomes "
            "version 'before', to which one can go back",
            file=sys.stderr,
        )


def _counts(plan: PackPlan) -> str:
    kept = f", {plan.count(KEPT)} kept as they are here" if plan.count(KEPT) else ""
    return (
        f"{plan.count(ADDED)} rules added, {plan.count(CHANGED)} changed, "
        f"{plan.count(REMOVED)} removed{kept}, {plan.same} the same"
    )


def tell_rules(plan: PackPlan) -> None:
    """List the rules that a version changes, or that are kept."""
    for rule in plan.rules[:_SHOWN]:
        note = f": {rule.note}" if rule.note else ""
        print(printable(f"{rule.act}: {rule.title} ({rule.level}, {rule.path}){note}"))
    if len(plan.rules) > _SHOWN:
        print(f"and {len(plan.rules) - _SHOWN} more")


def tell_put(settings: Settings, plan: PackPlan, put: PackPut, days: int) -> None:
    """Say what was done, and what to do next."""
    done, folder = sum(change.act != KEPT for change in plan.file_changes), plan.folder.absolute()
    if put.shadowed:
        named = (name for name, root in every_pack(settings).items() if root == folder)
        print(
            f"{put.shadowed} rules are in shadow for {days} days; 'headgate rules promote --pack "
            f"{next(named, folder.name)} --yes' lets them alert",
            file=sys.stderr,
        )
    if put.at_once:
        print(
            f"{put.at_once} changed rules alert at once: their files hold several rules",
            file=sys.stderr,
        )
    if put.pack is None:
        print(f"{done} files copied to {plan.folder}; they run once alerts.rules names it",
              file=sys.stderr)  # fmt: skip
    else:
        tell_in_force(put.pack)


def plan_json(plan: PackPlan, taken: PackVersion) -> Mapping[str, Any]:
    """A plan as data."""
    names = ("id", "title", "level", "path", "act", "note")
    return {
        "folder": str(plan.folder),
        "version": taken.version,
        "rules": [{name: asdict(rule)[name] for name in names} for rule in plan.rules],
        "same": plan.same,
    }
