"""Command `completion`: what a shell completes, written once from the commands' own parsers.

The script holds all words, so that a shell does not start Python at each key.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from headgate.completion.bash import bash
from headgate.completion.fish import fish
from headgate.completion.words import words_of_all
from headgate.completion.zsh import zsh

if TYPE_CHECKING:
    from infra.config.settings import Settings

_SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}


def build(commands: Any) -> None:
    """Register `completion`."""
    completion = commands.add_parser(
        "completion",
        help="a shell's completion of these commands",
        description="Writes a script to standard output. bash: headgate completion bash > "
        "~/.local/share/bash-completion/completions/headgate; zsh: a file _headgate in a folder "
        "of $fpath; fish: ~/.config/fish/completions/headgate.fish.",
    )
    completion.add_argument("shell", choices=tuple(_SHELLS), help="the shell it is for")
    completion.set_defaults(run=_run)


def _run(arguments: argparse.Namespace, settings: Settings) -> int:
    print("\n".join(_SHELLS[arguments.shell](words_of_all())))
    return 0
