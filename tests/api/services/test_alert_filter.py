"""What a caller types for whom an alert names is asked as the tables write it."""

from __future__ import annotations

import pytest

from api.services.alert_filter import AlertFilter


@pytest.mark.parametrize(
    ("typed", "asked"),
    [
        # Twelve digits, as a MAC address has without its colons.
        ("192.168.100.100", "192.168.100.100"),
        ("2001:DB8::1", "2001:db8::1"),
        ("1234::abcd:5678", "1234::abcd:5678"),
        ("02-00-00-00-00-0A", "02:00:00:00:00:0a"),
        ("0200.0000.000a", "02:00:00:00:00:0a"),
        ("WS-3310", "WS-3310"),
    ],
)
def test_an_address_is_asked_as_it_is_written(typed: str, asked: str) -> None:
    assert AlertFilter.of({"entity": typed}, "ann").entity == asked
