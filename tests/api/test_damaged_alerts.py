"""An alert whose body a disk has damaged: each way to it says so, and shows what is left."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

from alerts.delivery.reader import Wanted, details, newest_revisions, whole_details
from alerts.domain.alert_body import DamagedAlert
from alerts.tables import ALERT
from headgate.cli import main
from infra.delta.catalog import catalog
from infra.maintenance.backup import backup
from tests.api.plain_desk import PlainDesk
from tests.headgate.as_code.delta_by_hand import append_rows

pytestmark = pytest.mark.full

MAC = "02:00:00:00:00:07"
BROKEN = '{"alert_id": "x", "rule": {"id'
ADMIN = {"Authorization": f"Bearer {'t' * 32}"}


class Damaged:
    """A desk with whole alerts and one whose newest body is cut off."""

    def __init__(self, home: Path) -> None:
        self.desk = PlainDesk(home, devices=2)
        root = self.desk.settings.lake_root
        for table in catalog().values():
            if not (Path(str(root)) / table.path).exists():
                append_rows(root, table, [])
        (row,) = self.desk._bucket.alerts(self.desk.seen(7, 30))
        self.whole = row
        self.alert_id = str(row["alert_id"])
        times = dict.fromkeys(("event_time", "window_start", "window_end"), datetime.now(UTC))
        append_rows(root, ALERT, [row | times | {"body": BROKEN, "sequence": 9}])
        self.client = TestClient(self.desk.app, raise_server_exceptions=False, headers=ADMIN)
        self.others = [
            alert["alert_id"]
            for alert in self.client.get("/api/v1/alerts").json()["items"]
            if alert["alert_id"] != self.alert_id
        ]


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Damaged]:
    made = Damaged(tmp_path_factory.mktemp("desk"))
    yield made
    made.desk.app.state.services.close()


def test_the_dialogs_open_for_it_too(damaged: Damaged) -> None:
    ann = damaged.desk.browser("ann-asks", "analyst")
    for ids in ([damaged.alert_id], [damaged.alert_id, *damaged.others]):
        for address in ("/alerts/act/close", "/cases/add"):
            answer = ann.get(address, params={"id": ids})
            assert answer.status_code == 200, (address, answer.text)
            assert f'value="{damaged.alert_id}"' in answer.text
        dialog = ann.get("/alerts/act/close", params={"id": ids}).text
        assert "1 alert cannot be closed" in dialog
    assert "Silence what is like it" not in dialog or 'name="silence_entity" value=""' in dialog


def test_its_page_says_so_and_shows_what_is_left(damaged: Damaged) -> None:
    ann = damaged.desk.browser("ann", "analyst")
    for beside in ("", "?beside=1"):
        page = ann.get(f"/alerts/{damaged.alert_id}{beside}")
        assert page.status_code == 200, page.text
        assert "This alert is damaged" in page.text
        assert str(damaged.whole["title"]) in page.text
        assert MAC in page.text
        assert "{&#34;alert_id&#34;: &#34;x&#34;" in page.text, "the text as it is"
        assert ("<html" in page.text) == (not beside)
    other = ann.get(f"/alerts/{damaged.others[0]}")
    assert other.status_code == 200
    assert "is damaged" not in other.text


def test_its_explanation_says_what_is_lost(damaged: Damaged) -> None:
    explained = damaged.client.get(f"/api/v1/alerts/{damaged.alert_id}/explain")
    assert explained.status_code == 200, explained.text
    assert "its body is damaged" in explained.json()["damaged"]
    assert f"WHERE alert_id = '{damaged.alert_id}' AND revision = 1" in explained.json()["damaged"]
    assert explained.json()["rule"]["id"] == damaged.whole["rule_id"]
    # Of whom no event is known, none is shown; an empty list would be no SQL.
    assert " IN ()" not in explained.json()["evidence_sql"]
    whole = damaged.client.get(f"/api/v1/alerts/{damaged.others[0]}/explain").json()
    assert whole["damaged"] is None


def test_it_is_not_shared_and_its_case_names_it(damaged: Damaged) -> None:
    refused = damaged.client.get(f"/api/v1/alerts/{damaged.alert_id}/stix")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:headgate:problem:damaged")
    assert damaged.alert_id in refused.json()["detail"]
    both = [damaged.alert_id, damaged.others[0]]
    case = damaged.client.post("/api/v1/cases", json={"title": "both", "alerts": both}).json()
    refused = damaged.client.get(f"/api/v1/cases/{case['case_id']}/stix")
    assert refused.status_code == 409
    evidence = damaged.client.get(f"/api/v1/cases/{case['case_id']}/evidence")
    assert evidence.status_code == 200, evidence.text
    with zipfile.ZipFile(BytesIO(evidence.content)) as bundle:
        manifest = json.loads(bundle.read("manifest.json"))
        alerts = [json.loads(line) for line in bundle.read("alerts.ndjson").splitlines()]
    assert damaged.alert_id in manifest["damaged"][0]
    assert {"unreadable": BROKEN} in [alert["body"] for alert in alerts]


def test_a_preview_of_a_suppression_counts_it_as_unknown(damaged: Damaged) -> None:
    preview = damaged.client.post("/api/v1/suppressions/preview", json={"entity": MAC})
    assert preview.status_code == 200, preview.text
    assert (preview.json()["damaged"], preview.json()["checked"]) == (1, 1)
    assert preview.json()["alerts"] == 0


def test_a_preview_counts_one_that_is_json_and_lacks_its_rule_as_unknown(tmp_path: Path) -> None:
    desk = PlainDesk(tmp_path, devices=1)
    (row,) = desk._bucket.alerts(desk.seen(7, 30))
    times = dict.fromkeys(("event_time", "window_start", "window_end"), datetime.now(UTC))
    lacks = row | times | {"body": '{"entities": [], "mode": "live"}', "sequence": 9}
    append_rows(desk.settings.lake_root, ALERT, [lacks])
    desk.all_tables()
    with TestClient(desk.app, raise_server_exceptions=False, headers=ADMIN) as client:
        preview = client.post("/api/v1/suppressions/preview", json={"fields": {"user.name": "svc"}})
    assert preview.status_code == 200, preview.text
    assert (preview.json()["damaged"], preview.json()["alerts"]) == (1, 0)


def test_the_command_shows_it_and_lists_the_others(
    damaged: Damaged, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = damaged.desk.settings
    rows, _ = newest_revisions(settings, Wanted(entity="02:00:00:00:00:01"))
    assert len(rows) == 1, "a filter by whom an alert names passes over one that it cannot read"
    assert len(newest_revisions(settings, Wanted())[0]) == 3
    (alert,) = details(settings, [damaged.alert_id])
    assert alert.body == {"unreadable": BROKEN}
    with pytest.raises(DamagedAlert, match="its body is damaged"):
        whole_details(settings, [damaged.others[0], damaged.alert_id])
    assert main(["--home", str(settings.home), "alerts", "show", damaged.alert_id]) == 0
    shown = capsys.readouterr()
    assert "its body is damaged" in shown.err
    assert BROKEN.replace('"', '\\"') in shown.out


def test_counts_of_verdicts_and_reports_pass_over_it(damaged: Damaged) -> None:
    score = damaged.client.get("/api/v1/rule-scorecard?days=3650")
    assert score.status_code == 200, score.text
    settings = damaged.desk.settings
    span = f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}/{datetime.now(UTC):%Y-%m-%d}"
    for name, subject in (("weekly", ""), ("daily", ""), ("monthly", ""), ("device", MAC)):
        words = ["report", "run", name, "--interval", span, "--subject", subject]
        out = settings.home / f"{name}.json"
        assert main(["--home", str(settings.home), *words, "--out", str(out)]) == 0
        assert out.stat().st_size > 100


def test_what_was_put_back_is_listed_at_once_by_an_api_that_runs(tmp_path: Path) -> None:
    desk = PlainDesk(tmp_path / "home", devices=1)
    settings = desk.settings
    settings.checkpoint_root.mkdir(parents=True)
    made = backup(settings, tmp_path / "backups")
    (file,) = (Path(str(settings.lake_root)) / ALERT.path).glob("part-*.parquet")
    title = str(pq.read_table(file)["title"][0])
    content = file.read_bytes()
    # Letters of it alone, so that the file can be read and says something else.
    file.write_bytes(content.replace(title[:6].encode(), b"DAMAGE"))
    with TestClient(desk.app, raise_server_exceptions=False, headers=ADMIN) as client:

        def titles(address: str) -> set[str]:
            return {item["title"] for item in client.get(f"/api/v1/{address}").json()["items"]}

        assert titles("alerts") == {f"DAMAGE{title[6:]}"}
        words = ["backup", "restore", str(made), "--damaged", "--table", ALERT.name]
        assert main(["--home", str(settings.home), *words]) == 0
        assert file.read_bytes() == content
        assert titles("alerts") == {title}
