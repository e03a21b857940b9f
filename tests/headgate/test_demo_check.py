"""The demo ends once all jobs that may still change an alert have looked at what was sent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from alerts.delivery.platform_alert import RULE as PLATFORM_RULE
from alerts.delivery.topic_listener import TopicMessage
from headgate.demo.check import waited_out, watermark_behind
from headgate.demo.demo import Demo
from infra.config.settings import Settings, load


def batch(settings: Settings, job: str, number: int, watermark: float, *, ended: bool) -> None:
    """A batch in a checkpoint, as Spark leaves it; each moves the watermark on by ten seconds."""
    spark = settings.checkpoint_root / job / "spark"
    offsets, commits = spark / "offsets", spark / "commits"
    for folder in (offsets, commits):
        folder.mkdir(parents=True, exist_ok=True)
    before = json.dumps({"batchWatermarkMs": watermark * 1000})
    (offsets / str(number)).write_text(f"v1\n{before}\n")
    after = json.dumps({"nextBatchWatermarkMs": (watermark + 10) * 1000})
    if ended:
        (commits / str(number)).write_text(f"v1\n{after}")


def test_a_watermark_counts_once_its_batch_has_ended(tmp_path: Path) -> None:
    settings = load(home=tmp_path)
    assert (waited_out(settings), watermark_behind(settings, "repair")) == (0, 0)
    batch(settings, "alert", 0, 500, ended=True)
    batch(settings, "repair", 0, 0, ended=True)
    batch(settings, "repair", 1, 300, ended=True)
    batch(settings, "repair", 2, 400, ended=False)
    assert (waited_out(settings), watermark_behind(settings, "repair")) == (500, 310)


def test_an_alert_about_a_slow_job_is_shown_and_not_counted_against_the_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demo = Demo(load(home=tmp_path), tmp_path / "headgate.toml", speed=1, once=True)
    for rule in (PLATFORM_RULE, "dns-tunnel"):
        body = {"rule": {"id": rule, "level": "high"}, "title": f"Title of {rule}"}
        body |= {"alert_id": "a" * 32, "revision": 1, "activity": "create", "reason": "first"}
        demo.on_alert(TopicMessage(f"{rule}-alert", body, 0.0))
    assert [message.key for message in demo.heard] == ["dns-tunnel-alert"]
    shown = capsys.readouterr().err
    assert f"Title of {PLATFORM_RULE}" in shown
    assert "Title of dns-tunnel" in shown
