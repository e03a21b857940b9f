"""Indicators of odd servers: what is no number or no time is refused, and fails nothing else."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from alerts.feeds.indicator_objects import stix_indicator
from infra.config.settings import load

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "odd", [{"confidence": float("inf")}, {"confidence": float("nan")}, {"confidence": []}]
)
def test_a_score_that_is_no_number_is_refused(tmp_path: Path, odd: dict[str, Any]) -> None:
    (feed,) = load(home=tmp_path, intelligence={"taxii": [SERVER]}).intelligence.feeds
    refused = stix_indicator({"id": "indicator--1", **PLAIN, **odd}, NOW, feed)
    assert refused.refused == "a time or score that is none"


def test_what_was_changed_in_the_last_of_all_years_has_no_end(tmp_path: Path) -> None:
    server = SERVER | {"expire_days": 30}
    (feed,) = load(home=tmp_path, intelligence={"taxii": [server]}).intelligence.feeds
    late = {"id": "indicator--1", **PLAIN, "modified": "9999-12-31T23:59:59Z"}
    (entry,) = stix_indicator(late, NOW, feed).entries
    assert (entry.value, entry.valid_until) == ("evil.example", None)


SERVER = {"name": "partner", "url": "https://taxii.example/root/", "collection": "c"}
PLAIN = {"pattern": "[domain-name:value = 'evil.example']", "pattern_type": "stix"}
