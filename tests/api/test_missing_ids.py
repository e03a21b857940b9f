"""Every operation with an id in its path, asked for one that there is not: 404, as a problem."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fastapi.testclient import TestClient

from alerts.tables import CASE_ACT
from tests.api.least_body import least
from tests.api.plain_desk import PlainDesk
from tests.headgate.as_code.delta_by_hand import append_rows

MISSING = "nobody-has-this"
KINDS = {"type", "value", "register"}
"""Parts that are no ids: a kind of thing, or anything that a log may name."""
MADE = {
    "PUT /api/v1/queries/{name}",
    "PUT /api/v1/indicators/{name}",
    "POST /api/v1/indicators/{name}/entries",
}
"""Operations that make what is not there."""
BODIES: dict[str, Any] = {
    "PATCH /api/v1/alerts/{alert_id}": {"note": "x"},
    "PATCH /api/v1/cases/{case_id}": {"note": "x"},
    "POST /api/v1/rules/{rule}/preview": {"since": "2025-03-01T00:00:00Z"},
    "POST /api/v1/rules/{rule}/threshold": {"count": 7, "owner": "ann", "reason": "x"},
}
"""What a body needs that its schema does not say."""
QUERIES = {"DELETE /api/v1/indicators/{name}/entries": {"value": "evil.test"}}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    desk = PlainDesk(tmp_path_factory.mktemp("missing"))
    append_rows(desk.settings.lake_root, CASE_ACT, [])
    return desk.client("ann", "admin")


@pytest.mark.full
def test_what_a_path_names_and_is_not_there_is_a_404(client: TestClient) -> None:
    spec = client.get("/api/v1/openapi.json").json()
    asked, wrong = 0, []
    for path, operations in spec["paths"].items():
        ids = set(re.findall(r"\{(\w+)\}", path)) - KINDS
        for method, operation in operations.items():
            name = f"{method.upper()} {path}"
            if not ids or name in MADE:
                continue
            content = operation.get("requestBody", {}).get("content", {}).get("application/json")
            body = content and BODIES.get(name, least(content["schema"], spec))
            answered = client.request(
                method,
                re.sub(r"\{\w+\}", MISSING, path),
                json=body,
                params=QUERIES.get(name),
                headers={"If-Match": "*"},
            )
            asked += 1
            if answered.status_code != 404:
                wrong.append(f"{name} {body}: {answered.status_code} {answered.text[:300]}")
                continue
            problem = answered.json()
            assert answered.headers["content-type"] == "application/problem+json", name
            assert problem["type"] == "urn:headgate:problem:not-found", name
            assert MISSING in problem["detail"], (name, problem["detail"])
            assert "404" in operation["responses"], f"{name}: the description does not tell"
    assert wrong == []
    assert asked > 55


def test_a_rule_that_the_body_names_is_a_fault_of_the_request(client: TestClient) -> None:
    asked = {"kind": "preview", "rule": MISSING, "since": "2025-03-01T00:00:00Z"}
    answered = client.post("/api/v1/rule-jobs", json=asked)
    assert answered.status_code == 422
    assert f"no rule '{MISSING}'" in answered.json()["detail"]
