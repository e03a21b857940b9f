"""The commands there are: each package registers its own, and `headgate` runs them by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Build = Callable[[Any], None]
"""Adds a command's parser to argparse's subparsers; sets `run(arguments, settings) -> exit
code`."""


@dataclass(frozen=True)
class Command:
    """A command by its name, with its line of `headgate --help`."""

    name: str
    help: str
    load: Callable[[], Build]
    """Imports the command's module: only the command that is run pays for its imports."""


COMMANDS: dict[str, Command] = {}


def register_commands(*commands: Command) -> None:
    """Make commands known, in the order in which the help lists them."""
    COMMANDS.update({command.name: command for command in commands})
