"""Acts take ids by their first characters, and name those that may be meant where it is several."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from alerts.tables import CASE_ACT
from api.services.triage import Triage
from tests.api.plain_desk import PlainDesk
from tests.headgate.as_code.delta_by_hand import append_rows


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> PlainDesk:
    desk = PlainDesk(tmp_path_factory.mktemp("short"))
    append_rows(desk.settings.lake_root, CASE_ACT, [])
    return desk


@pytest.fixture(scope="module")
def client(desk: PlainDesk) -> TestClient:
    return desk.client("ann", "analyst")


def answered(client: TestClient, method: str, path: str, body: Any = None) -> Any:
    answer = client.request(method, f"/api/v1{path}", json=body, headers={"If-Match": "*"})
    assert answer.is_success, (path, answer.text)
    return answer.json()


def test_acts_take_the_first_characters_of_an_id(client: TestClient) -> None:
    alert = answered(client, "GET", "/alerts")["items"][0]["alert_id"]
    changed = answered(client, "PATCH", f"/alerts/{alert[:8]}", {"assignee": "bob"})
    assert changed["alert_id"] == alert
    answered(client, "POST", f"/alerts/{alert[:8]}/notes", {"text": "looked"})
    plan = {"ids": [alert[:8]], "change": {"status": "closed"}}
    counted = answered(client, "POST", "/alerts/bulk/preview", plan)
    assert counted["sample"] == [alert]
    case = answered(client, "POST", "/cases", {"title": "t", "alerts": [alert[:8]]})["case_id"]
    assert answered(client, "PATCH", f"/cases/{case[:9]}", {"note": "x"})["alerts"] == [alert]
    answered(client, "DELETE", f"/cases/{case[:9]}/alerts/{alert[:8]}")
    undone = answered(client, "POST", f"/acts/{changed['act_id'][:8]}/undo")
    assert undone["alerts"] == 1
    assert answered(client, "GET", f"/acts/{changed['act_id'][:8]}")["undone_by"] is not None
    begun = answered(
        client, "POST", "/suppressions", {"entity": "10.0.0.1", "until": "+2d", "reason": "scan"}
    )
    name = begun["suppression"]["suppression_id"]
    assert (
        answered(client, "DELETE", f"/suppressions/{name[:8]}")["suppression"]["state"] == "ended"
    )


def test_an_act_that_may_be_several_is_refused_with_their_ids(
    desk: PlainDesk, client: TestClient
) -> None:
    acts = Triage(desk.app.state.services.reader, desk.settings)._acts
    for name in ("twin-of-one", "twin-of-two"):
        acts.put(name, {"act_id": name, "alerts": {}, "undone_by": None})
    refused = client.post("/api/v1/acts/twin/undo")
    assert refused.status_code == 422
    assert "may be several (twin-of-one, twin-of-two)" in refused.json()["detail"]
    assert client.post("/api/v1/acts/twi/undo").status_code == 404
    assert client.get("/api/v1/acts/%2A%2A%2A%2A").status_code == 404
