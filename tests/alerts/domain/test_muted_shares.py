"""Alerts kept from the topic: one tenant's storm makes no other's forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from alerts.domain.alert import MAX_MUTED, FoldState, equal_share, forget_alerts, new_alert
from alerts.domain.entity import Entity
from tests.alerts.lifecycle.test_alert_fold import finding


def muted(state: FoldState, tenant: str | None, count: int, touched: int) -> None:
    """Alerts of a tenant that a suppression holds back, each a little newer than the last."""
    for number in range(count):
        row = finding(number) | {"tenant_uid": tenant}
        alert_id = f"{tenant}-{number:05}"
        alert = new_alert(alert_id, row, Entity("device", "aa", "device:aa"), None)
        alert.suppressed_by, alert.touched = "s", touched + number
        state.alerts[alert_id] = alert


def test_a_storm_of_one_tenant_leaves_the_others_theirs() -> None:
    state = FoldState()
    muted(state, "quiet", 10, 0)
    muted(state, "storm", 3 * MAX_MUTED, 1_000)
    muted(state, None, 2, 0)
    forget_alerts(state, 10_000, 0)
    kept = list(state.alerts)
    assert len(kept) == MAX_MUTED
    assert sum(name.startswith("quiet") for name in kept) == 10
    assert sum(name.startswith("None") for name in kept) == 2
    assert f"storm-{3 * MAX_MUTED - 1:05}" in kept, "the newest stay"
    assert "storm-00000" not in kept


def test_of_one_alone_the_newest_thousand_stay_as_before() -> None:
    state = FoldState()
    muted(state, None, MAX_MUTED + 5, 0)
    forget_alerts(state, 10_000, 0)
    assert sorted(state.alerts) == [f"None-{number:05}" for number in range(5, MAX_MUTED + 5)]


@given(st.lists(st.integers(0, 2_000), max_size=20), st.integers(20, 1_000))
def test_shares_fill_the_places_and_take_nothing_from_who_wants_little(
    wanted: list[int], places: int
) -> None:
    most = equal_share(wanted, places)
    given_out = [min(each, most) for each in wanted]
    assert sum(given_out) <= places
    if sum(wanted) <= places:
        assert given_out == wanted
    else:
        # One more for each that lacks some would be too many.
        assert sum(min(each, most + 1) for each in wanted) > places
