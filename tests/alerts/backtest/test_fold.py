"""What waits for a time without findings alerts in a backtest as it does live."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from alerts.backtest.fold import Refold
from alerts.domain.entity import micros
from alerts.rulepack.rule_pack import RulePack
from infra.config.settings import Settings
from tests.alerts.correlation_history import NOON, Point, correlation, row

HOUR = 3600
SILENT = {"type": "event_count", "op": "eq", "count": 0}
WITHOUT = {"type": "temporal", "count": 1, "any_of": (("a",),), "none_of": (("b",),)}


#   seconds   0 (bob a) ... 10 (eve a) 20 (eve b)        then nothing for an hour
@pytest.mark.parametrize(("keys", "told"), [(SILENT, {"bob": 0, "eve": 20}), (WITHOUT, {"bob": 0})])
def test_an_absence_at_the_end_of_history_alerts_when_its_time_is_over(
    keys: dict[str, Any], told: dict[str, int]
) -> None:
    definition = correlation(timespan_seconds=HOUR, alerting=True, **keys)
    points = [
        Point(n, *each, None)
        for n, each in enumerate([(0, "a", "bob"), (10, "a", "eve"), (20, "b", "eve")])
    ]
    rows = [
        row(point)
        | {"available_at": row(point)["received_at"], "alerting": False, "feeds": ["many"]}
        for point in points
    ]
    refold = Refold(lambda _: RulePack(correlations=(definition,)), Settings(), ["many"])
    refold.run(rows)
    raised = {alert.entity_value: alert.raised for alert in refold.alerts.values()}
    assert raised == {
        user: micros(NOON + timedelta(seconds=second + HOUR)) for user, second in told.items()
    }
