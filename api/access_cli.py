"""Commands `keys` and `users`: who may call the API, while it runs."""

from __future__ import annotations

import argparse
import getpass
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

from api.auth_roles import LADDER
from api.credentials import Credentials
from api.key_limits import known_tables, known_tenants
from infra.config.number_args import whole
from infra.config.settings import Settings
from infra.config.time_args import time_of, time_or_none
from infra.process.table_output import add_output_option, print_rows
from infra.streaming.outbox import note_audit


def build(subparsers: Any) -> None:
    """Register the commands."""
    keys = subparsers.add_parser("keys", help="keys of the API: list, make, rotate, end")
    verbs = keys.add_subparsers(dest="verb", required=True)
    listed = verbs.add_parser("list", help="keys, without their tokens")
    add_output_option(listed)
    listed.set_defaults(run=_list_keys)
    added = verbs.add_parser("add", help="make a key; its token is printed this once")
    added.add_argument("name", help="who has it, as ops.audit names them")
    added.add_argument("--role", required=True, choices=LADDER, help="what it may")
    added.add_argument("--expires", help="when it ends: +90d, 2027-01-01 (default: never)")
    added.add_argument("--per-minute", type=whole(), help="most requests a minute")
    added.add_argument(
        "--table", action="append", help="limit it to statements over this table (repeatable)"
    )
    added.add_argument(
        "--source", action="append", help="limit it to rows of this source (repeatable)"
    )
    added.add_argument(
        "--tenant", action="append", help="limit it to rows of this tenant (repeatable)"
    )
    added.set_defaults(run=_add_key)
    rotated = verbs.add_parser("rotate", help="give a key another token")
    rotated.add_argument("name", help="of the key")
    rotated.add_argument(
        "--overlap", metavar="SPAN", help="let the old token live on for so long, such as 24h"
    )
    rotated.set_defaults(run=_rotate_key)
    removed = verbs.add_parser("remove", help="end a key")
    removed.add_argument("name", help="of the key")
    removed.set_defaults(run=_remove_key)
    _build_users(subparsers)


def _build_users(subparsers: Any) -> None:
    users = subparsers.add_parser("accounts", help="people who sign in with a password")
    verbs = users.add_subparsers(dest="verb", required=True)
    listed = verbs.add_parser("list", help="users and their roles")
    add_output_option(listed)
    listed.set_defaults(run=_list_users)
    put = verbs.add_parser("put", help="make a user, or give one another role and password")
    put.add_argument("name", help="as ops.audit names them")
    put.add_argument("--role", required=True, choices=LADDER, help="what they may")
    put.add_argument(
        "--tenant", action="append", help="limit them to rows of this tenant (repeatable)"
    )
    put.set_defaults(run=_put_user)
    removed = verbs.add_parser("remove", help="end a user")
    removed.add_argument("name", help="of the user")
    removed.set_defaults(run=_remove_user)


def _list_keys(arguments: argparse.Namespace, settings: Settings) -> int:
    now = datetime.now(UTC)
    rows = [
        {
            "name": key.name,
            "role": key.role,
            "made_at": key.made_at,
            "expires_at": key.expires_at,
            "state": "expired" if key.is_over(now) else "good",
            "requests_per_minute": key.requests_per_minute,
            "tables": ", ".join(key.tables or ()) or None,
            "sources": ", ".join(key.sources or ()) or None,
            "tenants": ", ".join(key.tenants or ()) or None,
        }
        for key in sorted(Credentials(settings).read().keys, key=lambda key: key.name)
    ]
    print_rows(rows, arguments.output)
    if not rows:
        # On stderr: a program that reads JSON or CSV gets an empty list.
        print("no key was made; 'headgate keys add NAME --role ROLE' makes one", file=sys.stderr)
    if settings.api.keys:
        names = ", ".join(key.name for key in settings.api.keys)
        print(f"the settings have others: {names}", file=sys.stderr)
    return 0


def _add_key(arguments: argparse.Namespace, settings: Settings) -> int:
    expires_at = time_or_none("--expires", arguments.expires, datetime.now(UTC))
    key, token = Credentials(settings).add_key(
        arguments.name,
        arguments.role,
        expires_at,
        arguments.per_minute,
        known_tables(arguments.table),
        tuple(arguments.source) if arguments.source else None,
        known_tenants(arguments.tenant, settings),
    )
    _note(settings, "key.make", key.name, {"role": key.role, **key.limits})
    print(token)
    # To stderr, so that `TOKEN=$(headgate keys add ...)` holds the token alone.
    print("shown only once; the API takes it at once", file=sys.stderr)
    return 0


def _rotate_key(arguments: argparse.Namespace, settings: Settings) -> int:
    now = datetime.now(UTC)
    overlap = timedelta(0)
    if arguments.overlap:
        overlap = time_of("--overlap", f"+{arguments.overlap.lstrip('+')}", now) - now
    key, token = Credentials(settings).rotate_key(arguments.name, overlap)
    _note(settings, "key.rotate", key.name, {"role": key.role})
    print(token)
    return 0


def _remove_key(arguments: argparse.Namespace, settings: Settings) -> int:
    key = Credentials(settings).remove_key(arguments.name)
    _note(settings, "key.end", key.name, {"role": key.role})
    return 0


def _list_users(arguments: argparse.Namespace, settings: Settings) -> int:
    users = sorted(Credentials(settings).read().users, key=lambda user: user.name)
    rows = [
        {
            "name": user.name,
            "role": user.role,
            "made_at": user.made_at,
            "tenants": ", ".join(user.tenants or ()) or None,
        }
        for user in users
    ]
    print_rows(rows, arguments.output)
    if not rows:
        message = "there is no account; 'headgate accounts put NAME --role ROLE' makes one"
        print(message, file=sys.stderr)
    return 0


def _put_user(arguments: argparse.Namespace, settings: Settings) -> int:
    # Never as an argument: those can be seen by everybody on the machine.
    if sys.stdin.isatty():
        password = getpass.getpass(f"Password of {arguments.name}: ")
    else:
        password = sys.stdin.readline().rstrip("\n")
    tenants = known_tenants(arguments.tenant, settings)
    user = Credentials(settings).put_user(arguments.name, arguments.role, password, tenants)
    _note(settings, "user.put", user.name, {"role": user.role, **user.limits})
    return 0


def _remove_user(arguments: argparse.Namespace, settings: Settings) -> int:
    Credentials(settings).remove_user(arguments.name)
    _note(settings, "user.end", arguments.name, {})
    return 0


def _note(settings: Settings, act: str, target: str, detail: dict[str, Any]) -> None:
    note_audit(settings.home.absolute() / "spool", act, target, detail)
