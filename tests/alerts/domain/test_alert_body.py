"""A body that is damaged is read as such, whatever it is, and says so."""

from __future__ import annotations

import pytest

from alerts.domain.alert_body import UNREADABLE, damage, readable_body


@pytest.mark.parametrize("text", [None, "", "3", "null", '["a"]', '{"a": ', "\ud800"])
def test_what_is_no_json_object_is_damaged(text: str | None) -> None:
    body = readable_body(text)
    assert body == {UNREADABLE: text or ""}
    assert "alert a, revision 2: its body is damaged" in str(damage(body, "a", 2))


def test_an_object_is_whole() -> None:
    body = readable_body('{"state": "open"}')
    assert body == {"state": "open"}
    assert damage(body, "a", 2) is None
