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

COLUMNS = ("name", "strength", "kinds", "first", "last", "person", "evidence", "reason")


def build(subparsers: Any) -> None:
    """Add the command; it sets `run`, called with the arguments and the settings."""
    who = subparsers.add_parser(
        "who",
        help="who used an address, a device or a host at an instant",
        description="Users that VPN, Kerberos, logons and SSH name, the likeliest first, with "
        "the events that say so. Exit 1 when nobody is named.",
    )
    who.add_argument("value", help="address, MAC address or host name")
    who.add_argument("--at", required=True, help="instant, such as 2026-11-20T14:05:07Z")
    who.add_argument("--scope", help="site, where several use the same address")
    add_output_option(who)
    who.set_defaults(run=run_who)


def run_who(args: argparse.Namespace, settings: Settings) -> int:
    """Say who used it, and on stderr which device that was by its lease."""
    from api.services.reader import Reader
    from api.services.user_evidence import witnesses

    reader = Reader(settings)
    try:
        at = instant("--at", args.at)
        found = witnesses(reader, settings, kind_of(args.value), args.value, at, args.scope)
    finally:
        reader.close()
    if args.output == "json":
        print_document(found.model_dump(mode="json"))
        return 0 if found.users else 1
    told = [one.model_dump(mode="json") for one in (*found.users, *found.devices)]
    rows = [
        {
            name: (one["user"] or {}).get("full_name") if name == "person" else one[name]
            for name in COLUMNS
        }
        for one in told
    ]
    if found.entity.type == "ip":
        held = f"was leased to {found.mac}" if found.mac else "no lease is known to cover it"
        print(f"{found.entity.value}: {held}", file=sys.stderr)
    if not told:
        print(f"{found.entity.value}: no witness names a user then", file=sys.stderr)
        return 1
    print_rows(rows, args.output, COLUMNS)
    return 0 if found.users else 1


def kind_of(value: str) -> str:
    """What a value is: an address, a MAC address, else a host name."""
    from api.services.timeline import NORMAL

    for kind in ("ip", "mac"):
        with suppress(Usage):
            NORMAL[kind](value)
            return kind
    return "host"
