"""Settings: one file and the environment, and a sentence for what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from infra.config.settings import load
from infra.errors import Usage


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[kafka]\nbotstrap = 'x'", "unknown key 'kafka.botstrap'"),
        ("[sources.sshd]\ntz = 'Mars/Olympus'", "no time zone 'Mars/Olympus'"),
        ("[jobs]\nwait_seconds = -1", "jobs.wait_seconds = -1"),
        ("[jobs\n", "not valid TOML"),
        ("[retention.sources]\nsshd = -1", "sshd = -1 is no number of days; 0 keeps it as long"),
        ("[retention.sources]\nsshd = nan", "sshd = nan is no number of days"),
        ("[retention.sources]\nsshd = 1e9", "sshd = 1e+09 is no number of days"),
        ("[[scopes]]\nname = 'a'\nnetworks = ['10.0.0.0/33']", "10.0.0.0/33"),
    ],
)
def test_a_broken_setting_is_named_with_its_file(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "headgate.toml"
    file.write_text(text)
    with pytest.raises(Usage) as refused:
        load(file)
    assert said in str(refused.value)
    assert str(file) in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Usage, match="cannot be read"):
        load(tmp_path / "none.toml")


def test_the_environment_wins_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "headgate.toml"
    file.write_text("[kafka]\nbootstrap = 'file:1'\ntick_seconds = 3")
    monkeypatch.setenv("HEADGATE_KAFKA__BOOTSTRAP", "environment:2")
    settings = load(file)
    assert settings.kafka.bootstrap == "environment:2"
    assert settings.kafka.tick_seconds == 3


def test_a_secret_is_not_shown() -> None:
    settings = load(
        api={"token": "hush"},
        kafka={"user": "kim", "password": "quiet", "protocol": "SASL_SSL"},
    )
    assert "hush" not in repr(settings)
    assert "quiet" not in str(settings.kafka)


def test_settings_cannot_be_changed_once_read() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load().kafka.bootstrap = "elsewhere:1"  # type: ignore[misc]  # that is the point


def test_who_tells_preliminary_alerts_without_a_topic_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Usage, match=r"preliminary_by.*kafka\.preliminary_topic"):
        load(home=tmp_path, alerts={"preliminary_by": "lane"})
    kafka = {"preliminary_topic": "early"}
    named = load(home=tmp_path, alerts={"preliminary_by": "lane"}, kafka=kafka)
    assert named.alerts.preliminary_by == "lane"
