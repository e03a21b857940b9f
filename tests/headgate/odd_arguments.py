"""Every command with every option, and values that nobody would type on purpose."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from headgate.cli import _Parser
from infra.runtime.command_registry import COMMANDS

ODD = {
    "empty": "",
    "blank": " ",
    "bytes": "caf\udce9",
    "huge": "99999999999999999999",
    "digits": "9" * 5_000,
    "below": "-1",
    "nothing": "0",
    "nan": "nan",
    "endless": "1e400",
    "span": "-999999999w",
    "first": "0001-01-01",
    "last": "9999-12-31",
    "instant": "9999-12-31T23:59:59.999999+00:00",
    "none": "no-such-thing",
    "up": "../../../../nowhere",
    "steering": "a\x1b[31m\r\nb\u202e",
    "quoted": "'; DROP TABLE x --",
    "dash": "-",
    "long": "x" * 70_000,
}
"""What a slip, another encoding or a script with an unset variable makes of a value."""

PLAIN = {
    "at": "2026-11-20T14:05:07Z",
    "begin": "2026-11-20",
    "events_per_second": "100",
    "file": "a-file",
    "folder": "a-folder",
    "interval": "2026-11-20",
    "ip": "10.0.0.5",
    "model": "a-model",
    "role": "viewer",
    "since": "2026-11-20",
    "source": "sshd",
    "statement": "SELECT 1",
}
"""What else a command needs to get as far as the value that is odd; a name for all others."""

READ_BY: dict[tuple[tuple[str, ...], str], str] = {(("quality",), "--source"): "drift"}
"""The word of a command that reads an option which its default would never look at."""

SERVES = {
    ("alerts", "tail"): "reads a topic until Ctrl-C",
    ("api",): "serves until it is ended",
    ("demo",): "starts everything",
    ("listen",): "serves until it is ended",
    ("mcp",): "serves until it is ended",
    ("notebook",): "starts a notebook server",
    ("run",): "runs a job until it is ended",
    ("up",): "runs all jobs until it is ended",
    ("webhooks", "deliver"): "runs until it is ended",
}
"""Commands that do not end by themselves, so only how their values are read is tried."""


STARTS = {
    ("alerts", "verify"): "Spark",
    ("apply",): "Spark, where a rule asks it",
    ("assets", "import"): "Spark",
    ("backup", "create"): "a copy of the lake",
    ("compact",): "Spark",
    ("erase",): "Spark",
    ("import",): "Spark",
    ("install",): "writes below /etc",
    ("kafka", "acls"): "waits for a broker",
    ("kafka", "topics"): "waits for a broker",
    ("models", "backtest"): "Spark",
    ("models", "retrain"): "Spark",
    ("models", "train"): "Spark",
    ("rebuild",): "Spark",
    ("repair",): "Spark",
    ("reparse",): "Spark",
    ("replay",): "waits for a broker",
    ("rollup",): "Spark",
    ("rules", "backtest"): "Spark",
    ("users", "import"): "Spark",
    ("verify",): "Spark",
}
"""Commands that start what takes many seconds, so only how their values are read is tried."""


@dataclass(frozen=True)
class OddCall:
    """A command line with one odd value, and what the value was given to."""

    words: tuple[str, ...]
    path: tuple[str, ...]
    given_to: str
    dest: str
    kind: str
    may_be_empty: bool

    @property
    def name(self) -> str:
        """For the test's name."""
        return f"{'-'.join(self.path)} {self.given_to} {self.kind}"

    @property
    def runs(self) -> bool:
        """Whether the command ends by itself, in a moment."""
        return self.path not in SERVES and self.path not in STARTS

    @property
    def quick(self) -> bool:
        """One of those that `make test` runs: of commands that once ended in a trace or searched
        for long."""
        return (self.path, self.given_to, self.kind) in _QUICK


_QUICK = {
    (("alerts", "list"), "--limit", "huge"),
    (("alerts", "list"), "--entity", "bytes"),
    (("alerts", "list"), "--since", "instant"),
    (("alerts", "show"), "id", "bytes"),
    (("capacity",), "--results", "long"),
    (("keys", "add"), "--per-minute", "huge"),
    (("ledger",), "--since", "first"),
    (("ledger",), "--until", "last"),
    (("lease",), "--at", "last"),
    (("quality",), "--until", "first"),
    (("report", "run"), "--subject", "bytes"),
    (("sql",), "statement", "blank"),
    (("who",), "value", "empty"),
}


def parsers() -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Every command with its verbs, and what reads its values."""
    for name in COMMANDS:
        parser = _Parser(prog="headgate")
        COMMANDS[name].load()(parser.add_subparsers(dest="command", required=True))
        for path, leaf in _leaves(parser, ()):
            if path[0] == name:
                yield path, leaf


def _leaves(
    parser: argparse.ArgumentParser, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not below:
        yield path, parser
    for action in below:
        for name, child in action.choices.items():
            yield from _leaves(child, (*path, name))


def odd_calls() -> Iterator[OddCall]:
    """Each option and argument of each command with each odd value, the others plain."""
    for path, leaf in parsers():
        for action in leaf._actions:
            if action.nargs == 0 or action.dest == "help" or action.choices is not None:
                continue
            for kind, value in ODD.items():
                given_to = action.option_strings[-1] if action.option_strings else action.dest
                words = (*path, *_words(leaf, action, value, READ_BY.get((path, given_to))))
                yield OddCall(words, path, given_to, action.dest, kind, action.default == "")


def _words(
    leaf: argparse.ArgumentParser, odd: argparse.Action, value: str, read_by: str | None
) -> list[str]:
    """The line behind the command: options with `=`, so that no value is taken for one."""
    options, places = [], [] if read_by is None else [read_by]
    for action in leaf._actions:
        if action.dest == "help":
            continue
        text = value if action is odd else _plain(action)
        if action.option_strings:
            if action is odd or action.required:
                options.append(f"{action.option_strings[-1]}={text}")
        elif action is odd or action.nargs in (None, "+"):
            places.append(text)
    return [*options, *(["--", *places] if places else [])]


def _plain(action: argparse.Action) -> str:
    if action.choices is not None:
        return str(next(iter(action.choices)))
    return PLAIN.get(action.dest, "a-name")
