"""`headgate mcp`: the API's questions as tools for an assistant, over standard streams or HTTP."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from api.serving import base_url, is_loopback
from headgate.mcp.server import ApiClient, McpServer
from infra.config.number_args import port
from infra.config.secrets import of_file
from infra.config.settings import Settings
from infra.errors import Usage


def build(subparsers: Any) -> None:
    """Add the command; it sets `run`, called with the arguments and the settings."""
    command = subparsers.add_parser(
        "mcp",
        help="tools for an assistant, which read and propose",
        description="Speaks the Model Context Protocol on its standard streams, or over HTTP with "
        "--http. It asks the API with a key and can read what the key can. It changes nothing: "
        "what it proposes waits until a person confirms it in the console.",
    )
    command.add_argument("--url", help="address of the API (default: that of the settings)")
    command.add_argument(
        "--token-file",
        type=Path,
        help="file with the key, best one of role viewer; over HTTP each client sends its own",
    )
    command.add_argument(
        "--http", type=port, metavar="PORT", help="serve POST /mcp on this port; 0 picks a free one"
    )
    command.add_argument(
        "--host", default="127.0.0.1", help="address to listen on with --http (default: loopback)"
    )
    command.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="origin whose web pages may call, such as https://assistant.example.org",
    )
    command.add_argument(
        "--certificate", type=Path, metavar="PEM", help="certificate chain; beyond loopback needed"
    )
    command.add_argument("--private-key", type=Path, metavar="PEM", help="key of --certificate")
    command.set_defaults(run=run_mcp)


def run_mcp(args: argparse.Namespace, settings: Settings) -> int:
    """Answer until the client closes its end, or until interrupted."""
    url = args.url or _own_url(settings)
    if args.http is None:
        require_stdio(args)
        client = ApiClient(url, of_file(args.token_file, "--token-file"))
        McpServer(client).serve(sys.stdin, sys.stdout)
        return 0
    require_safe(args)
    # Refused now and not at the first request.
    ApiClient(url, "")
    return _serve(args, url)


def require_stdio(args: argparse.Namespace) -> None:
    """Raises `Usage` for options that only mean something with --http, and without a key."""
    if args.token_file is None:
        raise Usage("--token-file: name the file with the key (or serve with --http PORT)")
    if args.allow_origin or args.certificate or args.private_key:
        raise Usage("--allow-origin, --certificate and --private-key go with --http")


def require_safe(args: argparse.Namespace) -> None:
    """Raises `Usage` where keys would cross a network in the clear, or one key serve everybody."""
    if args.token_file is not None:
        raise Usage("--token-file goes without --http: there each client sends a key of its own")
    if (args.certificate is None) != (args.private_key is None):
        raise Usage("--certificate and --private-key go together")
    if args.certificate is None and not is_loopback(args.host):
        raise Usage(
            f"--host {args.host}: keys must not cross a network without TLS; give --certificate "
            "and --private-key, or stay on 127.0.0.1 behind a proxy that has them"
        )


def own_origins(host: str, port: int, tls: bool) -> Sequence[str]:
    """Origins of pages that this server's own machine would have served."""
    scheme = "https" if tls else "http"
    names = ("127.0.0.1", "localhost", "[::1]") if is_loopback(host) else (host,)
    return [f"{scheme}://{name}:{port}" for name in names]


def _own_url(settings: Settings) -> str:
    # By the name that stands in the certificate; without TLS by loopback, wherever it listens.
    if settings.api.certificate_file is not None and settings.api.console_url is not None:
        return settings.api.console_url.rstrip("/")
    return base_url(settings, "127.0.0.1")


def _serve(args: argparse.Namespace, url: str) -> int:
    import uvicorn

    from api.cli import listen_on
    from headgate.mcp.http_server import PATH, McpHttp
    from infra.process.bounded_http import MAX_CONNECTIONS, BoundedHttp

    listening = listen_on(args.host, args.http)
    port = listening.getsockname()[1]
    tls = args.certificate is not None
    origins = [*own_origins(args.host, port, tls), *args.allow_origin]
    shown = f"[{args.host}]" if ":" in args.host else args.host
    print(f"MCP on {'https' if tls else 'http'}://{shown}:{port}{PATH}  API: {url}", flush=True)
    # uvicorn raises the signal that ended it once more, as `headgate api` says.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    config = uvicorn.Config(
        McpHttp(lambda token: ApiClient(url, token), origins),
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=3,
        http=BoundedHttp,
        limit_concurrency=MAX_CONNECTIONS,
        ssl_certfile=args.certificate,
        ssl_keyfile=args.private_key,
    )
    uvicorn.Server(config).run(sockets=[listening])
    return 0
