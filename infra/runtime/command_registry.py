"""The commands there are: each package registers its own, and `headgate` runs them by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

Build = Callable[[Any], None]
"""Adds a command's parser to argparse's subparsers; sets `run(arguments, settings) -> exit
code`."""

Task = Literal[
    "begin",
    "run the jobs",
    "take logs in",
    "write rules",
    "work on alerts",
    "ask the data",
    "keep it in order",
]
"""What a person wants to do: the help lists commands under these."""

TASKS: tuple[Task, ...] = get_args(Task)


@dataclass(frozen=True)
class Command:
    """A command by its name, with its line of `headgate --help`."""

    name: str
    help: str
    load: Callable[[], Build]
    """Imports the command's module: only the command that is run pays for its imports."""
    task: Task
    load_verb: Callable[[str], Build | None] = lambda verb: None
    """The same with the module of one of its verbs alone; None: `load` has to do."""


COMMANDS: dict[str, Command] = {}


def register_commands(*commands: Command) -> None:
    """Make commands known, in the order in which the help lists them below their task."""
    for command in commands:
        # The later of two would silently take the place of the other.
        registered = COMMANDS.setdefault(command.name, command)
        if registered.load != command.load:
            raise ValueError(f"command {command.name} is registered twice; give one another name")
