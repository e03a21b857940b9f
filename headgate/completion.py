"""Command `completion`: what a shell completes, written once from the commands' own parsers.

The script holds all words, so that a shell does not start Python at each key.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from infra.runtime.command_registry import COMMANDS

if TYPE_CHECKING:
    from infra.config.settings import Settings

_GLOBAL = {"--config": (), "--home": ()}


@dataclass
class _Words:
    """What may follow the words of a command."""

    commands: dict[str, str] = field(default_factory=dict)
    """Further words, each with its line of help."""
    values: tuple[str, ...] = ()
    """Choices of a positional argument."""
    options: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Options, each with the values it may take."""


def build(commands: Any) -> None:
    """Register `completion`."""
    completion = commands.add_parser(
        "completion",
        help="a shell's completion of these commands",
        description="Writes a script to standard output. bash: headgate completion bash > "
        "~/.local/share/bash-completion/completions/headgate; zsh: a file _headgate in a folder "
        "of $fpath; fish: ~/.config/fish/completions/headgate.fish.",
    )
    completion.add_argument("shell", choices=tuple(_SHELLS))
    completion.set_defaults(run=_run)


def _run(arguments: argparse.Namespace, settings: Settings) -> int:
    print("\n".join(_SHELLS[arguments.shell](words_of_all())))
    return 0


def words_of_all() -> dict[str, _Words]:
    """What may follow, by the words that are there (`rules list`); '' is the very beginning."""
    tree = {"": _Words({c.name: c.help for c in COMMANDS.values()}, options=dict(_GLOBAL))}
    for name, command in COMMANDS.items():
        # A parser for each command: loading all into one would make their options clash.
        parser = argparse.ArgumentParser()
        action = parser.add_subparsers()
        command.load()(action)
        _walk(name, action.choices[name], tree)
    return tree


def _walk(path: str, parser: argparse.ArgumentParser, tree: dict[str, _Words]) -> None:
    words = tree[path] = _Words()
    for action in parser._actions:  # argparse names no public way to its own options
        choices = action.choices or ()
        if isinstance(action, argparse._SubParsersAction):
            # argparse keeps the help of subcommands apart from their parsers.
            texts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            words.commands = {name: texts.get(name, "") for name in choices}
            for name, below in action.choices.items():
                _walk(f"{path} {name}", below, tree)
        elif action.option_strings:
            values = tuple(map(str, choices))
            words.options |= dict.fromkeys(action.option_strings, values)
        else:
            words.values += tuple(map(str, choices))


def _bash(tree: Mapping[str, _Words]) -> Iterator[str]:
    yield "# Completion of headgate for bash, written by 'headgate completion bash'."
    yield "_headgate() {"
    yield '    local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"'
    yield '    local path="" next index words=""'
    yield "    for ((index = 1; index < COMP_CWORD; index++)); do"
    yield '        next="${path:+$path }${COMP_WORDS[index]}"'
    yield '        case "$next" in'
    yield f'            {"|".join(_quoted(path) for path in tree if path)}) path="$next" ;;'
    yield "        esac"
    yield "    done"
    yield '    case "$path:$before" in'
    for path, words in tree.items():
        for option, values in words.options.items():
            if values:
                yield f"        {_quoted(f'{path}:{option}')}) words={_quoted(' '.join(values))} ;;"
    yield "    esac"
    yield '    if [[ -z "$words" ]]; then'
    yield '        case "$path" in'
    for path, words in tree.items():
        every = [*words.commands, *words.values, *words.options]
        yield f"            {_quoted(path)}) words={_quoted(' '.join(every))} ;;"
    yield "        esac"
    yield "    fi"
    # What begins with nothing known is a file: `-o default` takes over where nothing is given.
    # Words only: file names are left to the shell.
    yield '    COMPREPLY=($(compgen -W "$words" -- "$current"))'
    yield "}"
    yield "complete -o default -F _headgate headgate"


def _zsh(tree: Mapping[str, _Words]) -> Iterator[str]:
    yield "#compdef headgate"
    # zsh can run bash's completion, so one script has to be right and not two.
    yield "autoload -U +X bashcompinit && bashcompinit"
    yield from _bash(tree)


def _fish(tree: Mapping[str, _Words]) -> Iterator[str]:
    yield "# Completion of headgate for fish, written by 'headgate completion fish'."
    yield f"set -g __headgate_paths {' '.join(_quoted(path) for path in tree if path)}"
    # fish gives no path of subcommands; this finds the longest one that is known.
    yield "function __headgate_at"
    yield "    set -l path ''"
    yield "    for word in (commandline -opc)[2..-1]"
    yield '        set -l next (string trim "$path $word")'
    yield '        contains -- "$next" $__headgate_paths; and set path "$next"'
    yield "    end"
    yield '    test "$path" = "$argv"'
    yield "end"
    for path, words in tree.items():
        condition = f"complete -c headgate -n {_quoted(f'__headgate_at {path}')}"
        for name, text in words.commands.items():
            yield f"{condition} -f -a {_quoted(name)} -d {_quoted(text)}"
        for value in words.values:
            yield f"{condition} -f -a {_quoted(value)}"
        for option, values in words.options.items():
            kind = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            yield f"{condition} {kind}" + (f" -x -a {_quoted(' '.join(values))}" if values else "")


_SHELLS = {"bash": _bash, "zsh": _zsh, "fish": _fish}


def _quoted(text: str) -> str:
    # Help texts may hold quotes, and the script is run by a shell.
    return "'" + text.replace("'", "'\\''") + "'"
