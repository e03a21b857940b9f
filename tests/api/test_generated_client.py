"""A client that openapi-python-client generates from the description asks a real server."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from api.app import create_app
from infra.config.settings import load
from tests.api.plain_desk import PlainDesk
from tests.api.server import served


def test_each_operation_has_a_name_of_its_own(tmp_path: Path) -> None:
    paths = create_app(load(home=tmp_path)).openapi()["paths"]
    names = Counter(o["operationId"] for methods in paths.values() for o in methods.values())
    assert {name: count for name, count in names.items() if count > 1} == {}
    assert all(name.isidentifier() and not name.startswith("_") for name in names)


@pytest.mark.full
def test_a_generated_client_lists_alerts_patches_one_and_runs_a_statement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = PlainDesk(tmp_path / "home")
    desk.all_tables()
    generate(desk.app.openapi(), tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def operation(path: str) -> Any:
        return importlib.import_module(f"generated_client.api.{path}")

    models = importlib.import_module("generated_client.models")
    client_class = importlib.import_module("generated_client").AuthenticatedClient
    with served(desk.settings) as url, client_class(base_url=url, token="t" * 32) as client:
        listed = operation("alerts.list_alerts").sync(client=client, limit=10)
        assert len(listed.items) == 3
        alert_id = listed.items[0].alert_id
        whole = operation("alerts.one_alert").sync_detailed(alert_id, client=client)
        change = models.AlertChange(assignee="ann", note="mine")
        etag = whole.headers["etag"]
        patched = operation("triage.change_alert").sync_detailed(
            alert_id, client=client, body=change, if_match=etag
        )
        assert patched.status_code == 200, patched.content
        stale = operation("triage.change_alert").sync_detailed(
            alert_id, client=client, body=change, if_match='"9.9"'
        )
        assert stale.status_code == 412
        body = models.Statement(sql="SELECT count(*) AS n FROM gold.alert")
        answer = operation("statements.statement").sync(client=client, body=body)
        assert answer.rows == [[3]]
        wanted = models.NewEvidence(alerts=[alert_id])
        job = operation("cases.submit_evidence_job").sync(
            client=client, body=wanted, wait_seconds=20.0
        )
        assert (job.state, job.alerts) == ("done", 1), job
        removed = operation("cases.cancel_evidence_job").sync(job.id, client=client)
        assert removed.digest == job.digest


def generate(description: dict[str, Any], folder: Path) -> None:
    """The client as package `generated_client` in `folder`."""
    spec, config = folder / "openapi.json", folder / "config.yml"
    spec.write_text(json.dumps(description))
    # It would run ruff over what it wrote.
    config.write_text("post_hooks: []\n")
    words = ["generate", "--path", str(spec), "--config", str(config), "--meta", "none",
             "--output-path", str(folder / "generated_client")]  # fmt: skip
    command = Path(sys.executable).with_name("openapi-python-client")
    done = subprocess.run([command, *words], capture_output=True, text=True, check=True)
    # A zip is no answer that it knows; all else has to be there.
    assert done.stdout.count("WARNING") <= 2, done.stdout
