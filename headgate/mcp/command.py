"""`headgate mcp`: the API's questions as tools for an assistant, over the standard streams."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from headgate.mcp.server import ApiClient, McpServer
from infra.config.secrets import of_file
from infra.config.settings import Settings


def build(subparsers: Any) -> None:
    """Add the command; it sets `run`, called with the arguments and the settings."""
    command = subparsers.add_parser(
        "mcp",
        help="tools for an assistant (Model Context Protocol), read only",
        description="Speaks the Model Context Protocol on its standard streams. It asks the API "
        "with a key and can read what the key can; it changes nothing.",
    )
    command.add_argument("--url", help="address of the API (default: that of the settings)")
    command.add_argument(
        "--token-file", type=Path, required=True, help="file with the key, best one of role viewer"
    )
    command.set_defaults(run=run_mcp)


def run_mcp(args: argparse.Namespace, settings: Settings) -> int:
    """Answer until the client closes its end."""
    url = args.url or f"http://127.0.0.1:{settings.api.port}"
    client = ApiClient(url, of_file(args.token_file, "--token-file"))
    McpServer(client).serve(sys.stdin, sys.stdout)
    return 0
