"""The completion for bash."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headgate.completion.words import Words, valued


def bash(tree: Mapping[str, Words]) -> Iterator[str]:
    """The script's lines."""
    yield "# Completion of headgate for bash, written by 'headgate completion bash'."
    yield "_headgate() {"
    yield '    local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"'
    yield '    local path="" next index words="" prefix="" files=""'
    yield from _walk(tree)
    # `--option=value`: bash parts words at "=" unless it was told not to.
    yield '    if [[ "$current" == "=" ]]; then current=""'
    yield '    elif [[ "$before" == "=" ]]; then before="${COMP_WORDS[COMP_CWORD-2]}"'
    yield '    elif [[ "$current" == --*=* ]]; then'
    yield '        before="${current%%=*}" prefix="${current%%=*}=" current="${current#*=}"'
    yield "    fi"
    yield '    case "$path:$before" in'
    yield from _values(tree)
    yield "    *)"
    # Options only where one is begun, or they would bury what a command takes.
    yield '        if [[ "$current" == -* ]]; then case "$path" in'
    for path, words in tree.items():
        yield f"            {quoted(path)}) words={quoted(' '.join(words.options))} ;;"
    yield '        esac; else case "$path" in'
    for path, words in tree.items():
        following = quoted(" ".join([*words.commands, *words.choices]))
        files = " files=1" if words.paths else ""
        yield f"            {quoted(path)}) words={following}{files} ;;"
    yield "        esac; fi ;;"
    yield "    esac"
    yield '    COMPREPLY=($(compgen -P "$prefix" -W "$words" -- "$current"))'
    # Files have blanks in their names, which only readline itself quotes.
    yield '    if [[ -n "$files" && ${#COMPREPLY[@]} -eq 0 ]]; then'
    yield "        compopt -o default 2>/dev/null"
    yield "    fi"
    yield "}"
    yield "complete -F _headgate headgate"


def _walk(tree: Mapping[str, Words]) -> Iterator[str]:
    """Find the command that is there: the value of an option may be called as one."""
    yield "    for ((index = 1; index < COMP_CWORD; index++)); do"
    yield '        next="${path:+$path }${COMP_WORDS[index]}"'
    yield '        case "$path:${COMP_WORDS[index]}" in'
    yield f"            {'|'.join(map(quoted, valued(tree)))})"
    yield '                [[ "${COMP_WORDS[index+1]}" == "=" ]] && ((index++))'
    yield "                ((index++)); continue ;;"
    yield "        esac"
    yield '        case "$next" in'
    yield f'            {"|".join(quoted(path) for path in tree if path)}) path="$next" ;;'
    yield "        esac"
    yield "    done"


def _values(tree: Mapping[str, Words]) -> Iterator[str]:
    """What the options take; nothing where it may be anything."""
    for path, words in tree.items():
        for name, option in words.options.items():
            if option.value is not None:
                choices = quoted(" ".join(option.value.choices))
                files = " files=1" if option.value.path else ""
                yield f"        {quoted(f'{path}:{name}')}) words={choices}{files} ;;"


def quoted(text: str) -> str:
    """As a shell reads it back: help texts may hold quotes."""
    return "'" + text.replace("'", "'\\''") + "'"
