"""The command `headgate`. A command's module is imported only when it is used."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import headgate.packages  # noqa: F401  makes the commands known
from infra.config.settings import Settings, load
from infra.errors import HeadgateError, Usage
from infra.runtime.command_registry import COMMANDS

BUG = 70
"""Exit code of a part that ended with an error that is not one of ours (`EX_SOFTWARE`)."""

_Run = Callable[[argparse.Namespace, Settings], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command: exit code 0, 1 (failed) or 2 (usage)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(arguments)
    except HeadgateError as error:
        print(f"headgate: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output (`| head`) has gone; that is no failure of ours.
        sys.stderr.close()
        return 0


def _run(arguments: list[str]) -> int:
    first = argparse.ArgumentParser(prog="headgate", add_help=False)
    first.add_argument("--config", type=Path)
    first.add_argument("--home", type=Path)
    known, rest = first.parse_known_args(_before_command(arguments))
    command = arguments[len(_before_command(arguments)) :]
    if not command or rest:
        return _help(rest)
    name = command[0]
    if name not in COMMANDS:
        raise Usage(f"no command '{name}'; 'headgate --help' lists them")
    parser = argparse.ArgumentParser(prog="headgate")
    COMMANDS[name].load()(parser.add_subparsers(dest="command", required=True))
    parsed = parser.parse_args(command)
    if known.config is not None:
        # Parts of us that run as processes of their own read the same file.
        os.environ["HEADGATE_CONFIG"] = str(known.config.absolute())
    overrides: dict[str, Any] = {} if known.home is None else {"home": known.home}
    run: _Run = parsed.run
    settings = load(known.config, **overrides)
    os.umask(settings.mask)  # also for the JVM and all processes that are started from here
    return run(parsed, settings)


def _before_command(arguments: list[str]) -> list[str]:
    """Global options: everything up to the first word that is neither an option nor its value."""
    index = 0
    while index < len(arguments) and arguments[index].startswith("-"):
        index += 2 if arguments[index] in ("--config", "--home") else 1
    return arguments[:index]


def _help(rest: list[str]) -> int:
    wrong = [word for word in rest if word not in ("-h", "--help", "--version")]
    if wrong:
        raise Usage(f"unknown option '{wrong[0]}'; 'headgate --help' lists what there is")
    if "--version" in rest:
        from importlib.metadata import version

        print(f"headgate {version('headgate')}")
        return 0
    print("usage: headgate [--config FILE] [--home FOLDER] COMMAND ...\n")
    print("Security log analytics: structured history, attribution and alerts.\n\ncommands:")
    wide = max(map(len, COMMANDS))
    for name, command in COMMANDS.items():
        print(f"  {name:<{wide}} {command.help}")
    print("\n'headgate COMMAND --help' says more.")
    return 0


def part(run: Callable[[], int]) -> int:
    """`run` in a process of its own; `BUG` where it ends with an error that is not one of ours, so
    that whoever started it can tell that from a command that says no."""
    try:
        return run()
    except Exception:
        traceback.print_exc()
        return BUG


if __name__ == "__main__":
    sys.exit(part(main))
