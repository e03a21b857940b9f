"""A value that is refused is told of in words of people."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from api.app import create_app
from api.console.wrong_values import wrong_value
from api.credentials import Credentials
from api.wire.rules import NewFilter, RuleText
from api.wire.runs import ReportWanted
from infra.config.settings import load

GOOD = {
    "conditions": [{"field": "user.name", "op": "eq", "value": "svc"}],
    "owner": "ann",
    "reason": "backup",
    "expires": "2999-01-01",
}


@pytest.mark.parametrize(
    ("model", "given", "words"),
    [
        (NewFilter, GOOD | {"reason": ""}, "reason: is empty"),
        (NewFilter, GOOD | {"reason": "x" * 9999}, "reason: has more than 2,000 characters"),
        (NewFilter, GOOD | {"expires": "soon"}, "expires: is no date such as 2026-11-20"),
        (RuleText, {"text": ""}, "text: is empty"),
        (ReportWanted, {"report": "daily"}, "interval: is missing"),
        (
            ReportWanted,
            {"report": "no such!", "interval": "yesterday"},
            "report: has signs that it may not have",
        ),
        (
            ReportWanted,
            {"report": "daily", "interval": "yesterday", "formats": ["doc"]},
            "formats: must be one of 'html', 'pdf', 'json' or 'csv'",
        ),
    ],
)
def test_the_first_wrong_value_is_named_with_the_reason(model, given, words):
    with pytest.raises(ValidationError) as refused:
        model(**given)
    assert wrong_value(refused.value) == words


@pytest.mark.full
def test_a_page_that_cannot_be_answered_now_offers_to_try_again(tmp_path: Path) -> None:
    settings = load(home=tmp_path, api={"token": "t" * 32})
    _, key = Credentials(settings).add_key("ann", "analyst")
    client = TestClient(create_app(settings), follow_redirects=False)
    assert client.post("/login", data={"key": key}).status_code == 303
    page = client.get("/alerts?level=high")
    assert page.status_code == 503
    assert 'href="/alerts?level=high">Try again<' in page.text
    assert "Try again" not in client.get("/alerts/no-such-page/at-all").text
