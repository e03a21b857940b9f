"""One caller takes no more than its part, and is told when to come back."""

from __future__ import annotations

import pytest

from api.services.quotas import Quotas, QuotaUsedUp


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_requests_of_a_minute_come_at_once_and_then_one_by_one() -> None:
    clock = Clock()
    quotas = Quotas(clock)
    for _ in range(60):
        quotas.take("a", 60)
    with pytest.raises(QuotaUsedUp) as refused:
        quotas.take("a", 60)
    quotas.take("b", 60)
    clock.now += refused.value.retry_after
    quotas.take("a", 60)


def test_statements_of_one_key_at_once_leave_room_for_the_others() -> None:
    quotas = Quotas(Clock())
    with (
        quotas.statement("a", 1, 100),
        quotas.statement("b", 1, 100),
        pytest.raises(QuotaUsedUp, match="1 statements of key 'a' run already"),
    ):
        quotas.statement("a", 1, 100).__enter__()
    with quotas.statement("a", 1, 100):
        pass


def test_seconds_of_statements_come_back_within_the_hour() -> None:
    clock = Clock()
    quotas = Quotas(clock)
    with quotas.statement("a", 1, 100):
        clock.now += 130
    with pytest.raises(QuotaUsedUp, match="within the hour") as refused:
        quotas.statement("a", 1, 100).__enter__()
    with quotas.statement("b", 1, 100):
        pass
    clock.now += refused.value.retry_after
    with quotas.statement("a", 1, 100):
        pass
