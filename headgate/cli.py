"""The command `headgate`. A command's module is imported only when it is used."""

from __future__ import annotations

import argparse
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

import headgate.packages  # noqa: F401  makes the commands known
from headgate.command_aliases import current_words
from infra.config.settings import Settings, load
from infra.errors import HeadgateError, NoLake, NoLakeHere, Usage
from infra.process.text_output import printable
from infra.runtime.command_registry import COMMANDS, TASKS
from infra.runtime.nearby_homes import nearby_homes

BUG = 70
"""Exit code of a part that ended with an error that is not one of ours (`EX_SOFTWARE`)."""

_Run = Callable[[argparse.Namespace, Settings], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command: exit code 0, 1 (failed) or 2 (usage)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(arguments)
    except HeadgateError as error:
        # A message may repeat what a file from outside says, which must not steer the terminal.
        lines = "\n".join(map(printable, str(error).split("\n")))
        print(f"headgate: {lines}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        # What shells return for a command that Ctrl-C ended: 128 and the number of SIGINT.
        return 130
    except BrokenPipeError:
        # The reader of our output (`| head`) has gone; that is no failure of ours.
        sys.stderr.close()
        return 0


def _run(arguments: list[str]) -> int:
    # Twice: global options stand before the command, whose own parser is not imported yet.
    first = argparse.ArgumentParser(prog="headgate", add_help=False)
    first.add_argument("--config", type=Path)
    first.add_argument("--home", type=Path)
    known, rest = first.parse_known_args(_before_command(arguments))
    command = arguments[len(_before_command(arguments)) :]
    if not command or rest:
        return _help(rest)
    command, sentence = current_words(command)
    if sentence is not None:
        print(f"headgate: {sentence}", file=sys.stderr)
    name = command[0]
    if name not in COMMANDS:
        raise Usage(f"no command '{name}';{_near(name, COMMANDS)} 'headgate --help' lists them")
    parser = _Parser(prog="headgate")
    # One command's module alone: importing all, with Spark among them, takes seconds.
    build = COMMANDS[name].load_verb(command[1]) if len(command) > 1 else None
    build = build or COMMANDS[name].load()
    build(parser.add_subparsers(dest="command", required=True))
    parsed = parser.parse_args(command)
    parsed.home = known.home
    if known.config is not None:
        # Parts of us that run as processes of their own read the same file.
        # Absolute: those processes may run in another folder.
        os.environ["HEADGATE_CONFIG"] = str(known.config.absolute())
    overrides: dict[str, Any] = {} if known.home is None else {"home": known.home}
    run: _Run = parsed.run
    settings = load(known.config, **overrides)
    os.umask(settings.mask)  # also for the JVM and all processes that are started from here
    try:
        return run(parsed, settings)
    except NoLake as error:
        near = next(nearby_homes(settings.home), None)
        if near is None or settings.lake is not None:
            raise
        raise NoLakeHere(f"{error}; {near} has one: headgate --home {near} {name} ...") from None


_VALUE_WITH_MINUS = re.compile(r"(?:-\d+[smhdw]?|-\d*\.\d+)$")
"""A number or a span of time before now."""


class _Parser(argparse.ArgumentParser):
    """A parser that says what a mistyped word may have meant; its subparsers are such too."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        # argparse takes `-24h` for an option, and `--since -24h` for one without a value; it has
        # no public way to tell it otherwise.
        self._negative_number_matcher = _VALUE_WITH_MINUS

    def error(self, message: str) -> NoReturn:
        """End with usage and message, as argparse does."""
        # argparse hands over its sentence only, so the word is read out of it.
        if wrong := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)$", message):
            known = [word.strip("' ") for word in wrong[2].split(",")]
            message += f";{_near(wrong[1], known)}".rstrip(";")
        elif unknown := re.search(r"unrecognized arguments: (--?[\w-]+)", message):
            message += f";{_near(unknown[1], _options(self))}".rstrip(";")
        super().error(message)


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The options of a parser and of all below it: the outermost reports what nobody knew."""
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _options(below)


def _near(word: str, known: Iterable[str]) -> str:
    near = get_close_matches(word, list(known), 1, 0.6)
    return f" did you mean '{near[0]}'?" if near else ""


def _before_command(arguments: list[str]) -> list[str]:
    """Global options: everything up to the first word that is neither an option nor its value."""
    index = 0
    while index < len(arguments) and arguments[index].startswith("-"):
        # Two of them take a value, which must not be taken for the command.
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
    print("Security log analytics: structured history, attribution and alerts.")
    wide = max(map(len, COMMANDS))
    for task in TASKS:
        print(f"\n{task}:")
        for command in COMMANDS.values():
            if command.task == task:
                print(f"  {command.name:<{wide}} {command.help}")
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
