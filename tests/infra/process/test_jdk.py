"""Which Java runs Spark: the one that Spark's own launcher takes, and why one will not do."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.errors import Fatal
from infra.process import jdk


def java(folder: Path, says: str) -> Path:
    """A `java` that says what version it is."""
    command = folder / "bin" / "java"
    command.parent.mkdir(parents=True)
    told = "Picked up JAVA_TOOL_OPTIONS: -Dversion=1"
    command.write_text(f"#!/bin/sh\necho '{told}' >&2\necho '{says}' >&2\n")
    command.chmod(0o755)
    return command


@pytest.fixture
def path_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one on the PATH, with no JAVA_HOME."""
    found = java(tmp_path / "path", 'openjdk version "17.0.9" 2023-10-17')
    monkeypatch.setenv("PATH", f"{found.parent}:/bin:/usr/bin")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return found


def test_java_home_stands_before_the_path(
    path_java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert jdk.require_java() == str(path_java)
    home = java(tmp_path / "home", 'openjdk version "21.0.1" 2023-10-17')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert jdk.require_java() == str(home)
    assert jdk.version(str(home)) == 21
    assert jdk.version_text(str(home)) == 'openjdk version "21.0.1" 2023-10-17'


@pytest.mark.parametrize(
    ("says", "number"), [('java version "1.8.0_392"', 8), ('openjdk version "11.0.2"', 11)]
)
def test_an_old_java_is_refused_with_the_remedy(
    path_java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, number: int
) -> None:
    java(tmp_path / "old", says)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(Fatal, match=f"is Java {number}; .* set JAVA_HOME to one"):
        jdk.require_java()


def test_a_java_home_without_a_java_is_named(
    path_java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    with pytest.raises(Fatal, match="nothing, which has no bin/java; correct it, or unset it"):
        jdk.require_java()


def test_no_java_at_all_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(Fatal, match="openjdk-17-jre-headless"):
        jdk.require_java()
