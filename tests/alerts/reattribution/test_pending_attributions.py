"""What waits for its attribution, as the last commits tell it."""

from __future__ import annotations

import pytest

from alerts.reattribution.pending_attributions import PendingAttributions
from alerts.tables import FINDING
from enrich.tables import ATTRIBUTION
from infra.streaming.lake import Lake
from tests.enrich.rows import at, detected, finding, put


@pytest.mark.full
def test_a_finding_waits_until_it_is_told_of_or_judged(lake: Lake) -> None:
    untold = PendingAttributions(lake)
    untold.follow()
    assert untold.finished is None
    assert not untold.before(at(1000))

    beat = detected(60) | {"mode": "live"}
    put(lake, FINDING, [finding(5, mode="live"), finding(6, late=20, mode="live"), beat])
    put(lake, FINDING, [finding(7, mode="import")])
    untold.follow()
    assert untold.finished == at(60)
    assert not untold.before(at(5))
    assert untold.before(at(5.1))
    assert untold.oldest == at(5)

    put(lake, ATTRIBUTION, [{"finding_id": "f5", "via": "join", "rev": 1, "event_time": at(5)}])
    untold.follow()
    assert not untold.before(at(26))
    assert untold.before(at(26.1))
    assert untold.oldest == at(26)
    untold.judged(at(30))
    assert untold.oldest is None
    assert not untold.before(at(1000))


def test_one_that_begins_later_sees_what_was_committed_before(lake: Lake) -> None:
    put(lake, FINDING, [finding(5, mode="live"), finding(6, mode="live")])
    put(lake, ATTRIBUTION, [{"finding_id": "f6", "via": "join", "rev": 1, "event_time": at(6)}])
    untold = PendingAttributions(lake)
    untold.follow()
    assert untold.before(at(6))
    untold.judged(at(6))
    assert not untold.before(at(1000))
