"""The command `headgate`. A command's module is imported only when it is used."""

from __future__ import annotations

import argparse
import errno
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

import headgate.packages  # noqa: F401  makes the commands known
from headgate.command_aliases import current_words
from infra.config.settings import Settings, load
from infra.errors import HeadgateError, NoLake, NoLakeHere, Usage
from infra.process.text_output import is_text, printable
from infra.runtime.command_registry import COMMANDS, TASKS
from infra.runtime.nearby_homes import nearby_homes

BUG = 70
"""Exit code of a part that ended with an error that is not one of ours (`EX_SOFTWARE`)."""

_Run = Callable[[argparse.Namespace, Settings], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command: exit code 0, 1 (failed) or 2 (usage)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if sys.stdout is None:  # closed, as by `>&-`: what is said goes nowhere
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # to the end
    try:
        code = _run(arguments)
        sys.stdout.flush()  # what cannot be written is said here, and not behind our end
        return code
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
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            if error.filename is None:
                raise  # it names no file that a person could look at
            where = printable(_shortened(str(error.filename)))
            print(f"headgate: {where}: {error.strerror}; give another path", file=sys.stderr)
            return 1
        # It may have been another file than the output: what was said before is not lost.
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        # Else what waits to be written would fail once more, with a trace.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        where = printable(str(error.filename or "the output"))
        print(f"headgate: {where}: {error.strerror}; make room and run it again", file=sys.stderr)
        return 1


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
    build(parser.add_subparsers(dest="command", required=True, metavar="COMMAND"))
    parsed = parser.parse_args(command)
    require_values(parser, command, parsed)
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


_LONGEST = 200
"""Characters that a sentence repeats of a value."""

_WRITTEN = {
    "int": "a whole number, such as 10",
    "float": "a number, such as 0.5",
    "fromisoformat": "a date, such as 2026-12-31",
}
"""What options take whose value is read by a function of this name."""


class _Parser(argparse.ArgumentParser):
    """A parser that says what a mistyped word may have meant; its subparsers are such too."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        # argparse takes `-24h` for an option, and `--since -24h` for one without a value; it has
        # no public way to tell it otherwise.
        self._negative_number_matcher = _VALUE_WITH_MINUS
        self._words: Sequence[str] = ()

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """The same, with the words known to `error`: which verb was meant they alone say."""
        self._words = list(args or ())
        return super().parse_args(args, namespace)

    def add_subparsers(self, **more: Any) -> Any:
        """Verbs, each on a line of the help and not all of them in its first lines, too."""
        return super().add_subparsers(**({"title": "verbs", "metavar": "VERB"} | more))

    def error(self, message: str) -> NoReturn:
        """End with usage and message, as argparse does."""
        if message.endswith(": VERB"):
            message = f"say what to do: {', '.join(_verbs(self))}"
        # argparse hands over its sentence only, so the word is read out of it.
        if wrong := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)$", message):
            known = [word.strip("' ") for word in wrong[2].split(",")]
            near = _near(wrong[1], known)
            if message.startswith("argument VERB"):
                message = f"no verb '{wrong[1]}'"
                near = near or f" there are {', '.join(_verbs(self))}"
            message += f";{near}".rstrip(";")
        elif unknown := re.search(r"unrecognized arguments: (--?[\w-]+)", message):
            message += f";{_near_option(self, self._words, unknown[1])}".rstrip(";")
        elif ill := re.search(r"^(argument .*): invalid (\w+) value: (.*)$", message, re.DOTALL):
            # argparse names the function that read it, which says nothing to who typed it.
            message = f"{ill[1]}: {ill[3]}: write {_WRITTEN.get(ill[2], 'another value')}"
        super().error("\n".join(map(printable, message.split("\n"))))


def _shortened(text: str) -> str:
    """A name that may be of any length, for a sentence."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text):,} characters)"


def require_values(
    parser: argparse.ArgumentParser, command: Sequence[str], parsed: argparse.Namespace
) -> None:
    """Raises `Usage` for a value that is empty, or whose bytes are no text: what it reaches would
    find nothing by it, after a long search, or end with a trace."""
    for action in _asked(parser, command):
        given = getattr(parsed, action.dest, None)
        name = action.option_strings[-1] if action.option_strings else action.metavar or action.dest
        for value in given if isinstance(given, list) else [given]:
            # A path may have a name of any bytes, and is none of these.
            if not isinstance(value, str):
                continue
            if not value.strip() and action.default != "":
                raise Usage(f"{name} '{value}': is empty; write {action.help or 'a value'}")
            if not is_text(value):
                raise Usage(f"{name} {_shortened(value)}: is no text; write it in UTF-8")


def _asked(parser: argparse.ArgumentParser, command: Sequence[str]) -> Iterator[argparse.Action]:
    """What the parsers of a command and its verbs take."""
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            yield action
            continue
        # The words before the verb are names of commands and no values.
        verb = next((index for index, word in enumerate(command) if word in action.choices), None)
        if verb is not None:
            yield from _asked(action.choices[command[verb]], command[verb + 1 :])


def _verbs(parser: argparse.ArgumentParser) -> Iterator[str]:
    """What the help lists of a command's verbs; former names are not among them."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from (choice.dest for choice in action._choices_actions)


_MEANT = (
    ("--since", "--from", "--begin", "--start", "--after"),
    ("--until", "--to", "--end", "--stop", "--before"),
    ("--output", "--format", "--json", "--csv", "--ndjson", "-o"),
    ("--limit", "--max", "--most", "--top", "--count", "-n"),
)
"""Options that people take for one another: commands have one of each line, if any."""


def _near_option(parser: argparse.ArgumentParser, words: Sequence[str], unknown: str) -> str:
    """What an option that the verb does not have may have meant: one of its own, else of others."""
    if unknown in ("--home", "--config"):
        return f" it stands before the command: headgate {unknown} ..."
    own = [option for action in _asked(parser, words) for option in action.option_strings]
    for alike in _MEANT:
        if unknown in alike and (meant := next((name for name in alike if name in own), None)):
            form = unknown.strip("-")
            value = f" {form}" if meant == "--output" and form in ("json", "csv", "ndjson") else ""
            return f" did you mean '{meant}{value}'?"
    # Without the dashes, which all have in common.
    names = {option.strip("-"): option for option in own if option.startswith("--")}
    if near := get_close_matches(unknown.strip("-"), names, 1, 0.65):
        return f" did you mean '{names[near[0]]}'?"
    others = sorted(set(_verbs_with(parser, unknown)))
    return f" it is an option of {', '.join(others[:3])}" if others else ""


def _verbs_with(parser: argparse.ArgumentParser, option: str) -> Iterator[str]:
    """The commands below a parser that have an option, as they are typed."""
    for action in parser._actions:
        if option in action.option_strings:
            yield f"'{parser.prog.removeprefix('headgate ')}'"
        if isinstance(action, argparse._SubParsersAction):
            for below in {id(each): each for each in action.choices.values()}.values():
                yield from _verbs_with(below, option)


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
