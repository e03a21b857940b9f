"""What may follow the words of a command line, as the commands' own parsers say it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from infra.runtime.command_registry import COMMANDS

_PATHS = ("file", "files", "paths", "folder", "lines")
"""Arguments that name files though their type is no path: `-` is standard input there."""


@dataclass(frozen=True)
class Value:
    """What an option or an argument takes."""

    choices: tuple[str, ...] = ()
    """What it may be; empty: anything."""
    path: bool = False
    """Whether it names a file or a folder."""


@dataclass(frozen=True)
class Option:
    """An option, with its line of help."""

    help: str = ""
    value: Value | None = None
    """What it takes; None: it is a switch."""


@dataclass
class Words:
    """What may follow the words of a command."""

    commands: dict[str, str] = field(default_factory=dict)
    """Further words, each with its line of help."""
    arguments: list[Value] = field(default_factory=list)
    options: dict[str, Option] = field(default_factory=dict)

    @property
    def choices(self) -> tuple[str, ...]:
        """What its arguments may be."""
        return tuple(choice for value in self.arguments for choice in value.choices)

    @property
    def paths(self) -> bool:
        """Whether one of its arguments names a file."""
        return any(value.path for value in self.arguments)


def valued(tree: Mapping[str, Words]) -> list[str]:
    """Each option that takes a value, behind its command: `rules list:--level`."""
    return [
        f"{path}:{name}"
        for path, words in tree.items()
        for name, option in words.options.items()
        if option.value is not None
    ]


_GLOBAL = {
    "--config": Option("settings, a TOML file", Value(path=True)),
    "--home": Option("folder for all that is kept", Value(path=True)),
    "--help": Option("list the commands"),
    "--version": Option("print the version"),
}


def words_of_all() -> dict[str, Words]:
    """What may follow, by the words that are there (`rules list`); '' is the very beginning."""
    tree = {"": Words({c.name: c.help for c in COMMANDS.values()}, options=dict(_GLOBAL))}
    for name, command in COMMANDS.items():
        # A parser for each command: loading all into one would make their options clash.
        parser = argparse.ArgumentParser()
        action = parser.add_subparsers()
        command.load()(action)
        _walk(name, action.choices[name], tree)
    return tree


def _jobs() -> tuple[str, ...]:
    from infra.runtime.job_registry import JOBS

    return tuple(JOBS)


def _tables() -> tuple[str, ...]:
    from infra.delta.catalog import catalog

    return tuple(catalog())


def _tables_and_views() -> tuple[str, ...]:
    from infra.delta.catalog import views

    return (*_tables(), *views())


KNOWN: Mapping[tuple[str, str], Callable[[], tuple[str, ...]]] = {
    ("run", "job"): _jobs,
    ("jobs resume", "job"): _jobs,
    ("compact", "table"): _tables,
    ("tables", "name"): _tables_and_views,
}
"""Arguments whose parser leaves it to the command to say what there is: command and argument, and
what there is."""


def _walk(path: str, parser: argparse.ArgumentParser, tree: dict[str, Words]) -> None:
    words = tree[path] = Words()
    for action in parser._actions:  # argparse names no public way to its own options
        if isinstance(action, argparse._SubParsersAction):
            # argparse keeps the help of subcommands apart from their parsers.
            texts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            words.commands = {name: texts.get(name, "") for name in action.choices}
            for name, below in action.choices.items():
                _walk(f"{path} {name}", below, tree)
        elif action.help == argparse.SUPPRESS:
            continue
        elif action.option_strings:
            option = Option(_help(parser, action), _value(path, action))
            words.options |= dict.fromkeys(action.option_strings, option)
        elif (value := _value(path, action)) is not None:
            words.arguments.append(value)


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """The help as `--help` prints it, on one line."""
    text = parser._get_formatter()._expand_help(action) if action.help else ""
    return " ".join(text.split())


def _value(path: str, action: argparse.Action) -> Value | None:
    if action.nargs == 0:
        return None
    names = KNOWN.get((path, action.dest))
    choices = names() if names else tuple(map(str, action.choices or ()))
    return Value(choices, action.type is Path or action.dest in _PATHS)
