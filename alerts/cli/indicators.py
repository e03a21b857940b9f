"""The command `headgate indicators`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from alerts.compiler.compiler import compile_rules
from alerts.compiler.indicator_lists import Listing, ListStore, rules_asking
from alerts.feeds.feed_state import FeedState, require_no_feed, state_file
from alerts.indicators.import_formats import FORMATS as FILE_FORMATS
from alerts.rulebook.rule_store import recompile
from alerts.rulepack.indicator_normalisation import INDICATOR_KINDS
from alerts.rulepack.locations import rule_folders, store_folder
from alerts.rulepack.rule_pack import PackStore, RulePack
from infra.config.intelligence_section import FeedSettings
from infra.config.settings import Settings
from infra.errors import Usage
from infra.process.table_output import add_output_option, print_rows
from infra.process.text_output import printable

MOST_BAD = 20
"""Entries that are named one by one; the others are counted."""


_NO_FEED = (
    "no feed in the settings ([[intelligence.taxii]] or [[intelligence.misp]]; "
    "docs/reference/settings.md)"
)


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

    fetched = verbs.add_parser("fetch", help="fetch feeds of the settings and renew their lists")
    fetched.add_argument("feeds", nargs="*", metavar="NAME", help="the feeds (default: all)")
    fetched.add_argument("--due", action="store_true", help="only those whose time has come")
    fetched.add_argument(
        "--anew", action="store_true", help="forget what was read of them before, and read all"
    )
    add_output_option(fetched)
    fetched.set_defaults(run=fetch_feeds)

    listed = verbs.add_parser("feeds", help="how each feed stands; exit 1 when one fails")
    add_output_option(listed)
    listed.set_defaults(run=show_feeds)


def load_list(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate indicators load NAME FILE`: live with the next micro-batch."""
    require_no_feed(settings, args.name)
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
    if not lists:
        print(
            "there is no list; 'headgate indicators load NAME FILE' makes one, feeds of the "
            "settings make theirs",
            file=sys.stderr,
        )
    return 0


def remove_list(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate indicators remove NAME`."""
    require_no_feed(settings, args.name)
    ListStore(store_folder(settings)).remove(args.name)
    recompile(settings)
    return 0


def fetch_feeds(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate indicators fetch`: 1 when a feed failed, whose list then stays as it is."""
    # Imported here: the client libraries of feeds are of no use to the other verbs.
    from alerts.feeds.fetch import Feed, feed_named, fetch_feed

    feeds: Sequence[Feed] = settings.intelligence.feeds
    if args.feeds:
        feeds = [feed_named(settings, name) for name in dict.fromkeys(args.feeds)]
    elif not feeds:
        raise Usage(_NO_FEED)
    rows, problems = [], []
    for feed in feeds:
        file = state_file(settings, feed)
        feed_state = file.read_or(FeedState(), lambda _: None)
        if args.due and not feed_state.is_due(feed, time.time()):
            continue
        state = fetch_feed(settings, feed, anew=args.anew)
        rows.append(_feed_row(feed, state))
        if state.problem is not None:
            problems.append(f"feed {feed.name}: {state.problem}; list '{feed.list_name}' stays")
    print_rows(rows, args.output)
    # With the words that the driver takes up, so that its log names the feed.
    for problem in problems:
        print(f"headgate: {printable(problem)}", file=sys.stderr)
    return 1 if problems else 0


def show_feeds(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate indicators feeds`."""
    states = {
        feed.name: state_file(settings, feed).read() or FeedState()
        for feed in settings.intelligence.feeds
    }
    rows = [_feed_row(feed, states[feed.name]) for feed in settings.intelligence.feeds]
    print_rows(rows, args.output)
    if not rows:
        print(_NO_FEED, file=sys.stderr)
    return 1 if any(row["problem"] for row in rows) else 0


def _feed_row(feed: FeedSettings, state: FeedState) -> dict[str, Any]:
    age = None if state.succeeded_at is None else round(time.time() - state.succeeded_at)
    return {
        "feed": feed.name,
        "list": feed.list_name,
        "indicators": state.indicators,
        "entries": state.entries,
        "refused": sum(state.refused.values()),
        "reasons": "; ".join(f"{reason}: {count}" for reason, count in state.refused.items()),
        "age_seconds": age,
        "problem": state.trouble(feed, time.time()),
    }


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
