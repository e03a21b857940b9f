"""What a shell completes is what the commands take."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from headgate.cli import main
from infra.runtime.command_registry import COMMANDS


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("bash") / "headgate"
    with pytest.MonkeyPatch.context() as patch, file.open("w") as out:
        patch.setattr("sys.stdout", out)
        assert main(["completion", "bash"]) == 0
    return file


def completed(script: Path, *words: str) -> set[str]:
    quoted = " ".join(f"'{word}'" for word in words)
    asked = f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _headgate"
    shown = subprocess.run(
        ["bash", "-c", f"source {script}; {asked}; printf '%s\\n' \"${{COMPREPLY[@]}}\""],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(shown.stdout.split())


def test_bash_completes_commands_verbs_options_and_their_values(script: Path) -> None:
    assert completed(script, "headgate", "") == {*COMMANDS, "--config", "--home"}
    assert completed(script, "headgate", "ru") == {"run", "rules"}
    assert {"list", "coverage", "preview"} <= completed(script, "headgate", "rules", "")
    assert completed(script, "headgate", "rules", "list", "--out") == {"--output"}
    values = completed(script, "headgate", "--home", "x", "rules", "list", "--output", "")
    assert values == {"table", "json", "ndjson", "csv"}
    assert completed(script, "headgate", "completion", "z") == {"zsh"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_every_command(shell: str, capsys) -> None:
    assert main(["completion", shell]) == 0
    written = capsys.readouterr().out
    assert [name for name in COMMANDS if f"'{name}'" not in written] == []
    assert "ndjson" in written
