"""The completion for fish, which shows each word's line of help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headgate.completion.words import Option, Words, valued


def fish(tree: Mapping[str, Words]) -> Iterator[str]:
    """The script's lines."""
    yield "# Completion of headgate for fish, written by 'headgate completion fish'."
    yield f"set -g __headgate_paths {' '.join(_quoted(path) for path in tree if path)}"
    yield f"set -g __headgate_valued {' '.join(map(_quoted, valued(tree)))}"
    # fish gives no path of subcommands; this finds the longest one that is known. The value of an
    # option may be called as a command.
    yield "function __headgate_at"
    yield "    set -l path ''"
    yield "    set -l value no"
    yield "    for word in (commandline -opc)[2..-1]"
    yield '        test "$value" = yes; and set value no; and continue'
    yield '        contains -- "$path:$word" $__headgate_valued; and set value yes'
    yield '        set -l next (string trim "$path $word")'
    yield '        contains -- "$next" $__headgate_paths; and set path "$next"'
    yield "    end"
    yield '    test "$path" = "$argv"'
    yield "end"
    for path, words in tree.items():
        condition = f"complete -c headgate -n {_quoted(f'__headgate_at {path}')}"
        if not words.paths:
            yield f"{condition} -f"
        for name, text in words.commands.items():
            yield f"{condition} -a {_quoted(name)} -d {_quoted(text)}"
        for choice in words.choices:
            yield f"{condition} -a {_quoted(choice)}"
        for name, option in words.options.items():
            yield f"{condition} {_option(name, option)}"


def _option(name: str, option: Option) -> str:
    named = f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
    takes = ""
    if option.value is not None and option.value.path:
        takes = " -r -F"
    elif option.value is not None:
        takes = " -x" + (
            f" -a {_quoted(' '.join(option.value.choices))}" if option.value.choices else ""
        )
    return f"{named}{takes} -d {_quoted(option.help)}"


def _quoted(text: str) -> str:
    """As fish reads it back: within quotes it knows a backslash too."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
