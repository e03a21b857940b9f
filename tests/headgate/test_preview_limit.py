"""A preview that shows fewer findings than there are says so: command, REST, console, notebook."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import headgate
from alerts.rulebook.rule_tests import BASE_TIME, complete
from api.app import create_app
from api.credentials import Credentials
from headgate.result import result_of
from infra.config.settings import load
from ingest.tables import EVENT
from tests.alerts.cli.test_rules import run
from tests.alerts.rulebook.test_preview import ID, rule
from tests.headgate.as_code.delta_by_hand import append_rows

SINCE = (BASE_TIME - timedelta(hours=1)).isoformat()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A lake in which the only rule finds five events."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "odd.yml").write_text(rule(), "utf-8")
    file = tmp_path / "headgate.toml"
    file.write_text(f'[alerts]\nbundled = false\nrules = ["{tmp_path}/rules"]\n', "utf-8")
    rows = [
        complete({"event_uid": f"e{n}", "unmapped": '{"requestParameters":{"a":"X"}}'}, (6003,))
        | {"source": "aws_cloudtrail", "mode": "import", "time": BASE_TIME + timedelta(hours=n)}
        for n in range(5)
    ]
    append_rows(load(file, home=tmp_path / "home").lake_root, EVENT, rows)
    return file


def test_a_result_tells_how_many_rows_there_are_in_all() -> None:
    cut = result_of([{"a": 1}, {"a": 2}], total=5)
    assert (cut.truncated, cut.total) == (True, 5)
    assert "cut: there are 5" in repr(cut)
    assert "(cut: there are 5)" in cut._repr_html_()
    assert not result_of([{"a": 1}], total=1).truncated
    assert result_of([], ["a"], total=1).truncated


@pytest.mark.full
def test_what_a_limit_leaves_out_is_told_everywhere(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = load(config, home=config.parent / "home", api={"token": "t" * 32})
    assert run(settings, "preview", ID, "--since", SINCE, "--limit", "2") == 0
    assert "5 findings in 5 events of its log source; the first 2" in capsys.readouterr().err

    hg = headgate.open(settings.home, config)
    seen = hg.rules.preview(ID, SINCE, limit=2)
    assert (len(seen), seen.truncated, seen.total) == (2, True, 5)
    assert "cut: there are 5" in repr(seen)
    assert "cut: there are 5" in seen._repr_html_()
    assert not hg.rules.preview(ID, SINCE, limit=5).truncated

    client = TestClient(create_app(settings))
    _, key = Credentials(settings).add_key("eve", "analyst", None)
    asked = {"since": SINCE, "limit": 2}
    bearer = {"Authorization": f"Bearer {key}"}
    answered = client.post(f"/api/v1/rules/{ID}/preview", json=asked, headers=bearer).json()
    assert (answered["findings"], len(answered["shown"])) == (5, 2)


@pytest.mark.full
def test_the_page_says_that_it_shows_the_first(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load(config, home=config.parent / "home", api={"token": "t" * 32})
    app = create_app(settings)
    _, key = Credentials(settings).add_key("eve", "analyst", None)
    browser = TestClient(app, follow_redirects=False)
    assert browser.post("/login", data={"key": key, "next": "/"}).status_code == 303
    desk = app.state.services.rules
    whole = desk.preview(ID, BASE_TIME - timedelta(hours=1), 50)
    assert whole.findings == len(whole.shown) == 5
    page = browser.get(f"/rules/{ID}", params={"preview": SINCE})
    assert "5 findings in 5 events" in page.text
    assert "are shown" not in page.text
    fewer = desk.preview(ID, BASE_TIME - timedelta(hours=1), 2)
    monkeypatch.setattr(desk, "preview", lambda *_: fewer)
    page = browser.get(f"/rules/{ID}", params={"preview": SINCE})
    assert "the first 2 are shown" in page.text
