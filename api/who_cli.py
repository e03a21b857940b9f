"""Command `who`: who used an address, a device or a host at an instant."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from typing import Any

from infra.config.settings import Settings
from infra.config.time_args import instant
from infra.errors import Usage
from infra.process.table_output import add_output_option, print_document, print_rows
from infra.process.text_output import printable

_COLUMNS = ("name", "strength", "kinds", "first", "last", "person", "evidence", "reason")


def build(subparsers: Any) -> None:
    """Add the command; it sets `run`, called with the arguments and the settings."""
    who = subparsers.add_parser(
        "who",
        help="who used an address, a device or a host at an instant",
        description="Users that VPN, Kerberos, logons and SSH name, the likeliest first, with "
        "the events that say so. Exit 1 when nobody is named.",
    )
    who.add_argument("value", help="address, MAC address or host name")
    who.add_argument(
        "--at", default="now", help="instant, as 2026-11-20T14:05:07Z or -20m (default: now)"
    )
    who.add_argument("--scope", help="site, where several use the same address")
    add_output_option(who)
    who.set_defaults(run=run_who)


def run_who(args: argparse.Namespace, settings: Settings) -> int:
    """Say who used it, and on stderr which device that was by its lease."""
    from api.services.entities.user_evidence import witnesses
    from api.tenant_views import WholeLake
    from enrich.assets.user_evidence import MOST_ASKED

    when = instant("--at", args.at)
    with WholeLake(settings.lake_root, memory=settings.api.statement_memory) as lake:
        witness_rows = witnesses(lake, settings, _kind_of(args.value), args.value, when, args.scope)
    if args.output == "json":
        print_document(witness_rows.model_dump(mode="json"))
        return 0 if witness_rows.users else 1
    model_dumps = [
        part.model_dump(mode="json") for part in (*witness_rows.users, *witness_rows.devices)
    ]
    rows = [
        {
            name: (part["user"] or {}).get("full_name") if name == "person" else part[name]
            for name in _COLUMNS
        }
        for part in model_dumps
    ]
    if witness_rows.entity.type == "ip":
        held = (
            f"was leased to {witness_rows.mac}"
            if witness_rows.mac
            else "no lease is known to cover it"
        )
        # On stderr: the rows on stdout stay a table, or CSV, for other programs.
        print(f"{printable(witness_rows.entity.value)}: {held}", file=sys.stderr)
    if witness_rows.more:
        # Else a user whom only older events name would look as if nobody had seen them.
        print(
            f"only the newest {MOST_ASKED:,} events that name a user were looked at; an earlier "
            "--at shows those before",
            file=sys.stderr,
        )
    if not model_dumps:
        whom = printable(witness_rows.entity.value)
        print(f"{whom}: no witness names a user then", file=sys.stderr)
        return 1
    print_rows(rows, args.output, _COLUMNS)
    return 0 if witness_rows.users else 1


def _kind_of(value: str) -> str:
    """What a value is: an address, a MAC address, else a host name."""
    from alerts.domain.entity import NORMAL

    for kind in ("ip", "mac"):
        # A value that is no address may still be a MAC address or a name.
        with suppress(Usage):
            NORMAL[kind](value)
            return kind
    return "host"
