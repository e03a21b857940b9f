"""The JSON of an alert: what it says of who had the address."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from alerts.domain.entity import Holder
from alerts.lifecycle.alert_json import _holder

END = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("complete", "ended"),
    [
        (datetime(2026, 11, 20, 11), None),  # a time without a zone is one of UTC
        (datetime(2026, 11, 20, 11, tzinfo=UTC), None),
        (END, "expired"),
        (None, None),
    ],
)
def test_a_lease_that_still_runs_is_not_told_as_expired(
    complete: datetime | None, ended: str | None
) -> None:
    holder = Holder(status="leased", lease_end=END, complete_up_to=complete, ended="expired")
    assert _holder(holder, "10.0.0.1")["ended"] == ended
