"""What is tried over and over says once why it fails."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from infra.process.log import SAME_AGAIN, News


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=1_000.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr("infra.process.log.time", clock)
    return clock


def test_the_same_is_told_once_in_a_while(clock: SimpleNamespace) -> None:
    said: list[str] = []
    news = News(said.append)
    for _ in range(int(SAME_AGAIN)):
        news.tell("away")
        clock.now += 1
    assert said == ["away"]
    news.tell("away")
    news.tell("full")
    news.tell("away")
    assert said == ["away", "away", "full", "away"]


def test_what_comes_again_is_news_unless_it_comes_and_goes(clock: SimpleNamespace) -> None:
    said: list[str] = []
    news = News(said.append, again=float("inf"))
    for _ in range(60):
        news.tell("away")
        clock.now += 1
        news.over()
    assert said == ["away"]
    clock.now += SAME_AGAIN
    news.tell("away")
    assert said == ["away"], "it was never well"
    news.over()
    news.tell("away")
    assert said == ["away", "away"]
