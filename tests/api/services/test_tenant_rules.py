"""Who is limited to tenants reads rules, with their own figures and nothing that names others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from tests.api.tenant_desk import NAMES, TenantDesk, assert_own
from tests.api.test_tenants import OTHER

SHARED = "11111111-1111-4111-8111-111111111111"
THEIRS = "22222222-2222-4222-8222-222222222222"
ALIKE = "11111111-2222-4222-8222-222222222222"
RULE = """title: {title}
id: {id}
status: test
description: About {other}
logsource: {{product: linux, service: sshd}}
detection:
  selection: {{activity_id: 1}}
  filter: {{status_detail: "{other}"}}
  condition: selection and not filter
level: high
falsepositives: ["{other} does so"]
"""


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TenantDesk]:
    home = tmp_path_factory.mktemp("tenant-rules")
    (home / "rules").mkdir()
    titles = {SHARED: "Root at work", THEIRS: f"Root at {OTHER}", ALIKE: f"Root of {OTHER}"}
    for rule_id, title in titles.items():
        text = RULE.format(id=rule_id, title=title, other=OTHER)
        (home / "rules" / f"{rule_id[:13]}.yml").write_text(text)
    (home / "rules" / "bent.yml").write_text(f"title: {OTHER}\n")
    running = TenantDesk(home, alerts={"rules": [str(home / "rules")]})
    for tenant in NAMES:
        running.made(tenant, 9, rule_id=SHARED, target=SHARED, uid=f"shared{tenant}")
    running.made("globex", 9, rule_id=THEIRS, target=THEIRS, uid="theirs")
    yield running
    running.close()


def test_rules_are_read_with_nothing_that_a_team_wrote_of_others(desk: TenantDesk) -> None:
    ann, root = desk.limited("ann"), desk.client("root", "admin")
    why = {"reason": f"asked by {OTHER}"}
    whole = root.get("/api/v1/rules").json()
    assert OTHER in str(whole["refused"])
    own = {SHARED, THEIRS, ALIKE}
    bundled = next(item for item in whole["items"] if item["id"] not in own)["id"]
    assert root.post(f"/api/v1/rules/{bundled}/disable", json=why).status_code == 200
    listed = ann.get("/api/v1/rules")
    assert listed.status_code == 200, listed.text
    items = {item["id"]: item for item in listed.json()["items"]}
    assert items.keys() == {item["id"] for item in whole["items"]} - {THEIRS, ALIKE}
    assert listed.json()["refused"] == []
    assert items[bundled]["state"] == "off"
    assert_own(desk, listed.text)
    shown = ann.get(f"/api/v1/rules/{bundled}").json()
    assert shown["text"] == root.get(f"/api/v1/rules/{bundled}").json()["text"] != ""
    assert "/" not in shown["path"]
    mine = ann.get(f"/api/v1/rules/{SHARED}")
    assert (mine.json()["rule"]["title"], mine.json()["text"]) == ("Root at work", "")
    assert_own(desk, mine.text)
    unknown = ann.get("/api/v1/rules/nothing").json()
    # As its id begins, whatever else begins so; and one that is refused is not told of.
    assert ann.get(f"/api/v1/rules/{SHARED[:8]}").json() == mine.json()
    assert root.get(f"/api/v1/rules/{SHARED[:8]}").status_code == 422
    assert "is refused" in root.get("/api/v1/rules/bent").text
    for name in (THEIRS, THEIRS[:8], f"Root at {OTHER}", "bent"):
        answer = ann.get(f"/api/v1/rules/{name}")
        assert answer.status_code == 404
        assert answer.json()["detail"] == unknown["detail"].replace("nothing", name)
    # To read them is all.
    boss = desk.limited("boss", "admin")
    text = {"text": RULE.format(id=SHARED, title="x", other="x")}
    for answer in (
        boss.post("/api/v1/rules", json=text),
        boss.put(f"/api/v1/rules/{SHARED}", json=text, headers={"If-Match": "*"}),
        boss.delete(f"/api/v1/rules/{SHARED}", headers={"If-Match": "*"}),
        boss.post(f"/api/v1/rules/{SHARED}/test"),
        boss.get(f"/api/v1/rules/{SHARED}/versions"),
        boss.get("/api/v1/rule-scorecard"),
    ):
        assert answer.status_code == 403, answer.text
        assert_own(desk, answer.text)
    assert (desk.settings.home / "rules" / f"{SHARED[:13]}.yml").read_text().count(OTHER) == 3
    explained = ann.get(f"/api/v1/alerts/{desk.ids['acme']}/explain").json()
    assert explained["rule"]["condition"] is None


@pytest.mark.full
def test_pages_of_rules_count_the_tenants_alerts_alone(desk: TenantDesk) -> None:
    browser = TestClient(desk.app, follow_redirects=False, raise_server_exceptions=False)
    key = desk.key("ann-page", "admin", tenants=("acme",))
    assert browser.post("/login", data={"key": key, "next": "/"}).status_code == 303
    for path in ("/rules", "/rules?state=off", f"/rules?q={OTHER}", f"/rules/{SHARED}",
                 f"/rules/{SHARED}?test=1", f"/rules/{SHARED}?preview=-7d"):  # fmt: skip
        answer = browser.get(path)
        assert answer.status_code == 200, (path, answer.text[:400])
        assert_own(desk, answer.text, OTHER if OTHER in path else "-")
    page = browser.get(f"/rules/{SHARED}").text
    assert "Switch it" not in page
    assert "is not shown to who is limited" in page
    assert "Findings and alerts are those of your tenants" in browser.get("/rules").text
    assert browser.get(f"/rules/{THEIRS}").status_code == 404
    assert browser.get(f"/rules/{SHARED}/tuning").status_code == 403
