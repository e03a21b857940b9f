"""What a shell completes is what the commands take: asked of bash, zsh and fish themselves."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headgate.cli import main
from headgate.completion.words import KNOWN, words_of_all
from infra.runtime.command_registry import COMMANDS

LINES = {
    "headgate stat": "status",
    "headgate rules cove": "rules coverage",
    "headgate rules list --outp": "rules list --output",
    "headgate rules list --output nd": "rules list --output ndjson",
    "headgate rules list --output=nd": "rules list --output=ndjson",
    "headgate --home rules stat": "--home rules status",
    "headgate completion z": "completion zsh",
    "headgate run sess": "run sessions",
    "headgate compact silver.event silver.dhcp_s": "compact silver.event silver.dhcp_segment",
    "headgate explain abc --ag": "explain abc --again",
    "headgate explain bund": "explain bund",
    "headgate evidence verify bund": "evidence verify bundle one.zip",
    "headgate --config bund": "--config bundle one.zip",
}
"""What is typed, and what it is after the first TAB. A file is named where one is taken alone."""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where each shell finds its script by the name that it looks for."""
    folder = tmp_path_factory.mktemp("completion")
    for shell, name in (("bash", "headgate"), ("zsh", "_headgate"), ("fish", "headgate.fish")):
        with pytest.MonkeyPatch.context() as patch, (folder / name).open("w") as out:
            patch.setattr("sys.stdout", out)
            assert main(["completion", shell]) == 0
    (folder / "work").mkdir()
    (folder / "work" / "bundle one.zip").touch()
    return folder


def completed(scripts: Path, *words: str) -> set[str]:
    """What bash offers for the last of these words."""
    quoted = " ".join(f"'{word}'" for word in words)
    asked = f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _headgate"
    shown = subprocess.run(
        ["bash", "-c", f"source {scripts}/headgate; {asked}; printf '%s\\n' \"${{COMPREPLY[@]}}\""],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(shown.stdout.split())


def test_bash_offers_commands_verbs_options_and_their_values(scripts: Path) -> None:
    assert completed(scripts, "headgate", "") == {*COMMANDS}
    assert completed(scripts, "headgate", "-") == {"--config", "--home", "--help", "--version"}
    assert completed(scripts, "headgate", "ru") == {"run", "rules"}
    assert {"list", "coverage", "preview"} <= completed(scripts, "headgate", "rules", "")
    forms = {"table", "json", "ndjson", "csv", "wide"}
    assert completed(scripts, "headgate", "--home", "x", "rules", "list", "--output", "") == forms
    assert completed(scripts, "headgate", "rules", "list", "--output", "=") == forms
    assert completed(scripts, "headgate", "rules", "list", "--output=n") == {"--output=ndjson"}
    assert completed(scripts, "headgate", "lease", "") == set()


def test_what_a_command_says_itself_that_there_is_belongs_to_one_of_its_arguments() -> None:
    tree = words_of_all()
    for (path, _), names in KNOWN.items():
        assert set(names()) & set(tree[path].choices), path


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_key_completes_what_was_typed(shell: str, scripts: Path, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here: .ci/run installs it")
    # A function in place of the program shows the words that the shell would run it with.
    shows = 'headgate() { printf "WORDS<%s>\\n" "$*"; }'
    start = {
        "bash": f"source {scripts}/headgate; PS1='> '; {shows}",
        "zsh": f"fpath=({scripts} $fpath); autoload -U compinit; compinit -u -D; PS1='> '; {shows}",
    }[shell]
    quiet = {"bash": ["--norc", "--noprofile", "-i"], "zsh": ["-f", "-i"]}[shell]
    with terminal([shell, *quiet], scripts / "work") as (keys, screen):
        keys(f"{start}\n")
        keys("headgate begun\n")
        until(screen, "WORDS<begun>")
        for typed, whole in LINES.items():
            keys(f"{typed}\t")
            # Where a key completes nothing nothing appears; what is typed ahead waits for it.
            keys("\n")
            shown = until(screen, "WORDS<", ">\r\n")
            assert shown.rsplit("WORDS<", 1)[1].split(">\r\n")[0].strip() == whole, typed


@pytest.mark.full
def test_fish_offers_the_same(scripts: Path, tmp_path: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("there is no fish here: .ci/run installs it")
    # fish completes only what there is as a program.
    program = tmp_path / "bin" / "headgate"
    program.parent.mkdir()
    program.symlink_to(sys.executable)
    environment = os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    asked = "".join(f"echo {i}; complete -C {line!r};" for i, line in enumerate(LINES))
    shown = subprocess.run(
        ["fish", "--no-config", "-c", f"source {scripts}/headgate.fish; {asked}"],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        cwd=scripts / "work",
    )
    assert shown.stderr == ""
    answers: list[list[str]] = []
    for line in shown.stdout.splitlines():
        if line == str(len(answers)):
            answers.append([])
        else:
            answers[-1].append(line.split("\t")[0].replace("\\ ", " "))
    for (typed, whole), offered in zip(LINES.items(), answers, strict=True):
        # fish says the last word whole; it says nothing where nothing completes it.
        assert offered == ([] if whole == typed.removeprefix("headgate ") else [offered[0]]), typed
        assert not offered or whole.endswith(offered[0]), typed


@contextmanager
def terminal(command: list[str], folder: Path) -> Iterator[tuple[object, int]]:
    """A program at a terminal: what types to it, and where its screen is read."""
    child, screen = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.environ["TERM"] = "dumb"
        os.execvp(command[0], command)
    try:
        yield lambda text: os.write(screen, text.encode()), screen
    finally:
        os.close(screen)
        os.kill(child, 9)
        os.waitpid(child, 0)


def until(screen: int, *marks: str) -> str:
    """What is shown until these marks were there, one behind the other."""
    shown, end = "", time.monotonic() + 30
    while time.monotonic() < end:
        if select.select([screen], [], [], 0.2)[0]:
            shown += os.read(screen, 65536).decode(errors="replace")
        place = -1
        for mark in marks:
            place = shown.find(mark, place + 1)
            if place < 0:
                break
        else:
            return shown
    raise AssertionError(f"no {marks} within 30 s, but: {shown[-2000:]}")
