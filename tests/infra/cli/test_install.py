"""Units of one machine: whose they are, what they may write, and that nothing is overwritten."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from infra.cli import install
from infra.config.settings import Settings, load
from infra.errors import Usage


@pytest.fixture
def machine() -> Settings:
    return load(home="/var/lib/headgate/home")


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    install.build(parser.add_subparsers())
    places = ["--program", "/opt/headgate/bin/headgate", "--jars", "/opt/headgate/archives"]
    return parser.parse_args(["install", *places, *words])


def unit(text: str) -> dict[str, list[str]]:
    """Every key of a unit with its values, in order."""
    values: dict[str, list[str]] = {}
    for key, value in re.findall(r"^(\w+)=(.*)$", text, re.M):
        values.setdefault(key, []).append(value)
    return values


def test_units_run_as_the_user_on_the_folders_that_were_named(machine: Settings) -> None:
    made = install.units(
        options("--user", "soc", "--settings", "/etc/soc/soc.toml", "--data", "/var/lib/headgate",
                "--broker", "embedded"), machine
    )  # fmt: skip
    assert set(made) == set(install.UNITS)
    up, api = unit(made["headgate.service"]), unit(made["headgate-api.service"])
    assert up["ExecStart"] == ["/opt/headgate/bin/headgate up --broker embedded"]
    assert api["ExecStart"] == ["/opt/headgate/bin/headgate api"]
    for each in (up, api):
        assert each["User"] == each["Group"] == ["soc"]
        assert each["ReadWritePaths"] == ["/var/lib/headgate"]
        assert "HEADGATE_CONFIG=/etc/soc/soc.toml" in each["Environment"]
        assert "HEADGATE_JARS=/opt/headgate/archives" in each["Environment"]
        assert each["EnvironmentFile"] == ["-/etc/soc/environment"]
        hardened = ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "RestrictSUIDSGID")
        assert [each[key] for key in hardened] == [["yes"]] * len(hardened)
        assert each["ProtectSystem"] == ["strict"]
    assert unit(made["headgate.target"])["WantedBy"] == ["multi-user.target"]


def test_without_options_they_are_those_of_the_repository_but_for_places(
    machine: Settings,
) -> None:
    made = install.units(options(), machine)
    for name, text in made.items():
        kept = (install.TEMPLATES / name).read_text("utf-8")
        assert re.sub(r"=.*", "", text) == re.sub(r"=.*", "", kept)
    assert "ExecStart=/opt/headgate/bin/headgate up\n" in made["headgate.service"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--user", "root"), "never root"),
        (("--user", "a b"), "an account of its own"),
        (("--data", "/home/ann/data"), "ProtectHome"),
        (("--settings", "/root/headgate.toml"), "ProtectHome"),
        (("--data", "/tmp/data"), "PrivateTmp"),
        (("--program", "bin/headgate"), "absolute path"),
        (("--settings", "/etc/a b.toml"), "plain letters"),
        (("--settings", "/etc/%i.toml"), "plain letters"),
        (("--data", "/srv/elsewhere"), "is not in it"),
    ],
)
def test_what_a_service_could_not_use_is_refused(
    machine: Settings, words: tuple[str, ...], said: str
) -> None:
    with pytest.raises(Usage, match=said):
        install.units(options(*words), machine)


def test_a_dry_run_prints_and_writes_nothing(
    machine: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "units"
    assert install.run_install(options("--dry-run", "--unit-folder", str(folder)), machine) == 0
    assert f"# {folder}/headgate.service" in capsys.readouterr().out
    assert not folder.exists()


def test_a_unit_that_somebody_changed_is_not_overwritten_unasked(
    machine: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("infra.cli.install.shutil.which", lambda _: None)
    words = ("--unit-folder", str(tmp_path))
    assert install.run_install(options(*words), machine) == 0
    said = capsys.readouterr()
    assert "were not checked" in said.err
    assert "systemctl enable --now headgate.target" in said.err
    assert install.run_install(options(*words), machine) == 0
    changed = tmp_path / "headgate-api.service"
    changed.write_text(changed.read_text("utf-8") + "# ours\n")
    other = tmp_path / "headgate.service"
    other.unlink()
    with pytest.raises(Usage, match="--force overwrites it"):
        install.run_install(options(*words), machine)
    assert not other.exists()
    assert install.run_install(options(*words, "--force"), machine) == 0
    assert "# ours" not in changed.read_text("utf-8")


def test_what_systemd_says_against_a_unit_is_said_and_nothing_is_written(
    machine: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    verify = tmp_path / "systemd-analyze"
    verify.write_text("#!/bin/sh\necho 'ssh.service: other' >&2\n"
                      "echo \"$2: Unknown key, headgate\" >&2\nexit 1\n")  # fmt: skip
    verify.chmod(0o755)
    monkeypatch.setattr("infra.cli.install.shutil.which", lambda _: str(verify))
    folder = tmp_path / "units"
    assert install.run_install(options("--unit-folder", str(folder)), machine) == 1
    said = capsys.readouterr().err
    assert "Unknown key" in said
    assert "ssh.service" not in said
    assert not folder.exists()
