"""The completion for zsh, which shows each word's line of help."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from headgate.completion.bash import quoted
from headgate.completion.words import Option, Value, Words, valued


def zsh(tree: Mapping[str, Words]) -> Iterator[str]:
    """The script's lines."""
    yield "#compdef headgate"
    yield "# Completion of headgate for zsh, written by 'headgate completion zsh'."
    yield "_headgate() {"
    yield "    local at='' next index=2 from=1"
    yield "    local -a commands"
    yield from _walk(tree)
    # `_arguments` looks at the words behind the command alone.
    yield '    words=("$words[from]" "${(@)words[from+1,-1]}"); (( CURRENT -= from - 1 ))'
    yield '    case "$at" in'
    for path, words in tree.items():
        yield f"        {quoted(path)})"
        if words.commands:
            described = (f"{name}:{text}" for name, text in words.commands.items())
            yield f"            commands=({' '.join(map(quoted, described))})"
        yield f"            _arguments -S : {' '.join(map(quoted, _specs(words)))} ;;"
    yield "    esac"
    yield "}"
    # zsh runs this file as the function at the first key, and calls the function from then on.
    yield 'if [[ "$funcstack[1]" == _headgate ]]; then _headgate "$@"'
    yield "else compdef _headgate headgate; fi"


def _walk(tree: Mapping[str, Words]) -> Iterator[str]:
    """Find the command that is there: the value of an option may be called as one."""
    yield "    for (( ; index < CURRENT; index++ )); do"
    yield '        next="${at:+$at }$words[index]"'
    yield '        case "$at:$words[index]" in'
    yield f"            {'|'.join(map(quoted, valued(tree)))}) (( index++ )); continue ;;"
    yield "        esac"
    yield '        case "$next" in'
    every = "|".join(quoted(path) for path in tree if path)
    yield f'            {every}) at="$next" from=$index ;;'
    yield "        esac"
    yield "    done"


def _specs(words: Words) -> Iterator[str]:
    for name, option in words.options.items():
        yield _option(name, option)
    if words.commands:
        yield "1:command:{_describe command commands}"
        return
    for place, value in enumerate(words.arguments, 1):
        # The last one may stand there again and again.
        behind = "*" if place == len(words.arguments) else str(place)
        yield f"{behind}:value:{_action(value)}"


def _option(name: str, option: Option) -> str:
    text = re.sub(r"([\[\]\\:])", r"\\\1", option.help)
    # "=": also `--option=value`; "*": some may be given again.
    value = "" if option.value is None else f":value:{_action(option.value)}"
    sign = "=" if value and name.startswith("--") else ""
    return f"*{name}{sign}[{text}]{value}"


def _action(value: Value) -> str:
    if value.choices:
        return f"({' '.join(value.choices)})"
    return "_files" if value.path else "( )"
