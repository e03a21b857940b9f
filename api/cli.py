"""Commands `api`, `sql` and `lease`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, cast

from infra.config.number_args import port, whole
from infra.config.settings import Settings
from infra.config.time_args import instant, instant_or_none
from infra.errors import Usage
from infra.process.priority import stand_back
from infra.process.progress import progress
from infra.process.table_output import add_output_option, print_document, print_rows

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

_LAST_WORDS = 2.0
"""Seconds for what is to be left in order once the last requests had theirs."""
_LOOK_SECONDS = 0.25
_CONNECT_SECONDS = 1.0


def build(subparsers: Any) -> None:
    """Add the commands; each sets `run`, called with the arguments and the settings."""
    api = subparsers.add_parser("api", help="serve the REST API until interrupted")
    api.add_argument("--host", help="address to listen on (default: api.host of the settings)")
    api.add_argument("--port", type=port, help="port (default: api.port); 0 picks a free one")
    api.set_defaults(run=run_api)

    link = subparsers.add_parser("console-link", help="a link that signs in to the console once")
    link.add_argument("--port", type=whole(1, 65_535), help="port of the API (default: api.port)")
    link.set_defaults(run=run_link)

    sql = subparsers.add_parser("sql", help="ask the tables in Spark SQL, bounded")
    sql.add_argument("statement", help="one SELECT; - reads it from standard input")
    sql.add_argument(
        "--param", action="append", default=[], metavar="NAME=VALUE", help="value for :NAME"
    )
    sql.add_argument("--as-of", metavar="T", help="over the tables as they were at this instant")
    sql.add_argument("--max-rows", type=whole(), help="most rows of the answer")
    sql.add_argument(
        "--engine",
        choices=("auto", "duckdb", "spark"),
        default="auto",
        help="what answers (auto: DuckDB where it can, else Spark, which takes seconds to start)",
    )
    add_output_option(sql)
    sql.set_defaults(run=run_sql)

    lease = subparsers.add_parser("lease", help="who held an address at an instant")
    lease.add_argument("ip", help="address")
    lease.add_argument(
        "--at", default="now", help="instant, as 2026-11-20T14:05:07Z or -20m (default: now)"
    )
    lease.add_argument("--scope", help="site, where several use the same address")
    lease.add_argument("--known-by", help="as it was known at that instant (default: now)")
    add_output_option(lease)
    lease.set_defaults(run=run_lease)


def run_api(args: argparse.Namespace, settings: Settings) -> int:
    """Serve until interrupted. Prints the address and where the token is."""
    from api.auth import token_file, token_of
    from api.serving import base_url, flight_url, in_clear, make_server

    host = args.host or settings.api.host
    port = settings.api.port if args.port is None else args.port
    # Bound before anything is made: a port that is taken is then said at once, in one sentence.
    listening = listen_on(host, port)
    token_of(settings)
    server = make_server(settings, host)
    where = "api.token of the settings" if settings.api.token else str(token_file(settings))
    bound = listening.getsockname()[1]
    print(f"API on {base_url(settings, host, bound)}  token: {where}", flush=True)
    if (flight := getattr(cast("FastAPI", server.config.app).state, "flight", None)) is not None:
        print(f"Flight SQL on {flight_url(settings, host, flight.port)}", flush=True)
    if (clear := in_clear(settings, host)) is not None:
        print(clear, file=sys.stderr, flush=True)
    # uvicorn raises the signal that ended it once more; by default that ends us where we stand,
    # and nothing that goes with this process is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # Not before: while it starts it answers nobody, however few jobs there are.
    stand_back(settings.api.nice)
    # A statement in a thread cannot be interrupted and would hold the process up.
    threading.Thread(target=_end_in_time, args=(server,), daemon=True).start()
    server.run(sockets=[listening])
    return 0


def run_link(args: argparse.Namespace, settings: Settings) -> int:
    """Print a login link; it serves once, within an hour."""
    from api.console.session import new_link
    from api.serving import base_url
    from infra.runtime.nearby_homes import require_folder

    # The link lies in the home: in one that was mistyped no API looks for it.
    require_folder(settings, "console-link")
    # With TLS the name of the certificate is wanted, and that is where people reach it.
    known = settings.api.console_url if args.port is None else None
    url = known.rstrip("/") if known else base_url(settings, port=args.port)
    print(f"{url}{new_link(settings)}")
    host, port = settings.api.host, settings.api.port if args.port is None else args.port
    # On stderr: a script that takes the link gets it alone. Elsewhere it may run all the same.
    if known is None and not _answers(host, port):
        print(
            f"headgate: nothing listens at {url}: 'headgate api' serves the console there; another "
            "port is named with --port",
            file=sys.stderr,
        )
    return 0


def _answers(host: str, port: int) -> bool:
    """Whether something listens there."""
    import socket

    try:
        socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
    # A port beyond 65535 raises `OverflowError`.
    except (OSError, OverflowError):
        return False
    return True


def _end_in_time(server: uvicorn.Server) -> None:
    """End the process some seconds after it was told to, whatever a thread of it still does."""
    from api.serving import LAST_ANSWERS

    while not server.should_exit:
        time.sleep(_LOOK_SECONDS)
    time.sleep(LAST_ANSWERS + _LAST_WORDS)
    # `sys.exit` in a thread ends that thread only.
    os._exit(0)


def listen_on(host: str, port: int) -> Any:
    """A listening socket; raises `Usage` in one sentence when the port or address cannot be had."""
    import socket

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    # Else a restart fails for a minute, while connections of before linger in TIME_WAIT.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen(128)
    except OSError as error:
        made.close()
        raise Usage(
            f"cannot listen on {host}:{port} ({error.strerror}); stop what listens there or choose "
            "another with --port"
        ) from None
    return made


def run_sql(args: argparse.Namespace, settings: Settings) -> int:
    """Answer one statement; what is missing at the end is said on stderr."""
    from api.observability.audit_log import note_unended
    from api.observability.noted_statements import noted_statement
    from api.sql.runner import Statements
    from infra.runtime.nearby_homes import require_home

    sql = sys.stdin.read() if args.statement == "-" else args.statement
    as_of = instant_or_none("--as-of", args.as_of)
    statement = {"sql": sql} | ({"as_of": as_of.isoformat()} if as_of else {})
    # Before it is noted that somebody asked: a home that was mistyped is not to be made.
    require_home(settings, "sql ...")
    # Statements that an interrupted command left are noted by whichever command comes next.
    note_unended(settings)
    stand_back(settings.api.nice)
    running = Statements(settings, workers=1, once=True)
    try:
        with progress("sql"), noted_statement(settings, statement, "cli") as act:
            run = running.run(sql, _params(args.param), args.max_rows, as_of, engine=args.engine)
            act.outcome, act.detail["rows"] = "ok", len(run.rows)
    finally:
        running.close()
    names = _apart([column["name"] for column in run.columns])
    rows = [dict(zip(names, row, strict=True)) for row in run.rows]
    print_rows(rows, args.output, names)
    if run.engine == "spark":
        print(f"answered by Spark: {run.engine_reason}", file=sys.stderr)
    if run.versions:
        read = ", ".join(f"{name} {version}" for name, version in run.versions.items())
        print(f"versions read: {read}", file=sys.stderr)
    if run.truncated:
        print(
            f"cut after {len(run.rows)} rows (limit: {run.truncated_by}); "
            "there are more",
            file=sys.stderr,
        )  # fmt: skip
    return 0


def run_lease(args: argparse.Namespace, settings: Settings) -> int:
    """Say who held an address, with the lease that proves it."""
    from api.services.entities.leases import holder
    from api.tenant_views import WholeLake

    try:
        address = str(ip_address(args.ip))
    except ValueError:
        raise Usage(f"'{args.ip}' is not an IP address") from None
    moment, known_by = instant("--at", args.at), instant_or_none("--known-by", args.known_by)
    with WholeLake(settings.lake_root, memory=settings.api.statement_memory) as lake:
        answer = holder(lake, settings.scopes, address, moment, args.scope, known_by)
    if args.output in ("json", "ndjson"):
        print_document(answer.model_dump(mode="json"))
        return 0
    model_dump = answer.model_dump(mode="json", exclude={"lease"})
    model_dump |= answer.lease.model_dump(mode="json") if answer.lease else {}
    if args.output == "csv":
        print_rows([model_dump], "csv")
    else:
        print_rows([{"": name, "value": value} for name, value in model_dump.items()], "table")
    return 0


def _apart(names: Sequence[str]) -> list[str]:
    """Names of columns, a second one of a name as `name_2`: an object has each name once."""
    apart: list[str] = []
    for name in names:
        number, free = 1, name
        while free in apart:
            number += 1
            free = f"{name}_{number}"
        apart.append(free)
    return apart


def _params(given: Sequence[str]) -> dict[str, str]:
    params = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise Usage(f"--param {text}: write NAME=VALUE")
        params[name] = value
    return params
