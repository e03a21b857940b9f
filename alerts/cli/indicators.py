"""The command `headgate indicators`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from alerts.compiler.compiler import compile_rules
from alerts.compiler.indicator_lists import Listing, ListStore, rules_asking
from alerts.indicators.import_formats import FORMATS as FILE_FORMATS
from alerts.rulebook.rule_store import recompile, rule_folders
from alerts.rulepack.indicator_normalisation import INDICATOR_KINDS
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import PackStore, RulePack
from infra.config.settings import Settings
from infra.process.table_output import add_output_option, print_rows
from infra.process.text_output import printable

MOST_BAD = 20
"""Entries that are named one by one; the others are counted."""


def build(subparsers: Any) -> None:
    """Register the command with the command line's subparsers."""
    indicators = subparsers.add_parser("indicators", help="lists of addresses, domains, hashes")
    verbs = indicators.add_subparsers(dest="verb", required=True)

    loaded = verbs.add_parser("load", help="put a file in the place of a list")
    loaded.add_argument("name", metavar="NAME", help="the list, as rules name it")
    loaded.add_argument("file", type=Path, metavar="FILE", help="the whole list, not what is new")
    loaded.add_argument(
        "--kind", choices=("auto", *INDICATOR_KINDS), default="auto", help="of all entries"
    )
    loaded.add_argument("--format", choices=FILE_FORMATS, help="default: by the file's ending")
    add_output_option(loaded)
    loaded.set_defaults(run=load_list)

    shown = verbs.add_parser("list", help="the lists in force and the rules that ask them")
    add_output_option(shown)
    shown.set_defaults(run=show_lists)

    removed = verbs.add_parser("remove", help="take a list away; rules that ask it are refused")
    removed.add_argument("name", metavar="NAME", help="the list")
    removed.set_defaults(run=remove_list)


def load_list(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate indicators load NAME FILE`: live with the next micro-batch."""
    store = ListStore(store_folder(settings))
    done = store.load(args.name, args.file, args.format, args.kind)
    for bad in done.bad[:MOST_BAD]:
        print(
            f"refused: {args.file}:{bad.number}: {printable(bad.text)}: {printable(bad.reason)}",
            file=sys.stderr,
        )
    if len(done.bad) > MOST_BAD:
        print(f"refused: {len(done.bad) - MOST_BAD} more", file=sys.stderr)
    compiled = recompile(settings)
    for refused in compiled.refused:
        if args.name in refused.reason:
            print(printable(f"refused: {refused.rule}: {refused.reason}"), file=sys.stderr)
    rows = [_row(args.name, done.listing, compiled.pack)]
    before = done.before.entries if done.before else 0
    print_rows([row | {"before": before} for row in rows], args.output)
    return 0


def show_lists(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate indicators list`."""
    lists = ListStore(store_folder(settings)).lists()
    packs = PackStore(store_folder(settings))
    folders, off = rule_folders(settings), packs.disabled()
    pack = compile_rules(folders, disabled=off, store=packs.folder).pack if lists else RulePack()
    print_rows([_row(name, listing, pack) for name, listing in sorted(lists.items())], args.output)
    return 0


def remove_list(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate indicators remove NAME`."""
    ListStore(store_folder(settings)).remove(args.name)
    recompile(settings)
    return 0


def _row(name: str, listing: Listing, pack: RulePack) -> dict[str, Any]:
    return {
        "list": name,
        "entries": listing.entries,
        "kinds": " ".join(f"{kind}:{count}" for kind, count in listing.kinds.items()),
        "refused": listing.refused,
        "file": listing.file,
        "loaded_at": listing.loaded_at.isoformat(timespec="seconds"),
        "rules": " ".join(rules_asking(listing, pack)),
        "hash": listing.hash,
    }
