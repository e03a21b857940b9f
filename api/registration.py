"""What `api` contributes: the commands that ask, and the one that serves."""

from __future__ import annotations

from infra.runtime.command_registry import Build, Command, register_commands


def register() -> None:
    """Register the commands of this package."""
    register_commands(
        Command("lease", "who held an address at an instant", _cli),
        Command("who", "who used an address, a device or a host at an instant", _who),
        Command("sql", "ask the tables in Spark SQL", _cli),
        Command("api", "serve the REST API and the console", _cli),
        Command("console-link", "a link that signs in to the console once", _cli),
    )


def _cli() -> Build:
    from api.cli import build

    return build


def _who() -> Build:
    from api.who_cli import build

    return build
