"""What `api` contributes: the commands that ask, and the one that serves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from infra.config.settings import Settings
from infra.runtime.check_registry import register_check
from infra.runtime.command_registry import Build, Command, register_commands

if TYPE_CHECKING:  # the doctor looks; the other commands need nothing of it
    from infra.runtime.machine_checks import Finding


def register() -> None:
    """Register the commands and checks of this package."""
    register_check(_tls_findings)
    register_commands(
        Command("lease", "who held an address at an instant", _cli, "ask the data"),
        Command(
            "who", "who used an address, a device or a host at an instant", _who, "ask the data"
        ),
        Command("sql", "ask the tables in Spark SQL", _cli, "ask the data"),
        Command("keys", "keys of the API: list, make, rotate, end", _access, "run the jobs"),
        Command("accounts", "people who sign in with a password", _access, "run the jobs"),
        Command("api", "serve the REST API and the console", _cli, "run the jobs"),
        Command("console-link", "a link to the console for one use", _cli, "run the jobs"),
    )


def _tls_findings(settings: Settings) -> Iterable[Finding]:
    from api.serving import tls_findings

    return tls_findings(settings)


def _cli() -> Build:
    from api.cli import build

    return build


def _who() -> Build:
    from api.who_cli import build

    return build


def _access() -> Build:
    from api.access_cli import build

    return build
