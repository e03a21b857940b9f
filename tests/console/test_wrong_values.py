"""A value that is refused is told of in words of people."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from api.console.wrong_values import wrong_value
from api.wire.rules import NewFilter, RuleText
from api.wire.runs import ReportWanted

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
