"""The page of sources and jobs: how each job stands, and who may take up one that stopped."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient

from alerts.delivery.publish_offset import PublishOffset
from alerts.preliminary.place import Place, Waiting, place_file
from api.app import create_app
from api.credentials import Credentials
from api.services.console.platform_health import preliminaries
from infra.config.settings import load
from infra.runtime.job_status import JobStatus, write_status
from tests.alerts.tuning.history import Asked
from tests.reporting.memory_lake import MemoryLake


@pytest.mark.parametrize(("role", "offered"), [("admin", ["ingest"]), ("engineer", [])])
def test_a_job_that_stopped_for_good_is_told_so_and_admins_may_take_it_up(tmp_path, role, offered):
    settings, now = load(home=tmp_path), time.time()
    write_status(settings, JobStatus("ingest", "failed", at=now, why="the disk is full"))
    write_status(settings, JobStatus("alert", "waiting", at=now, progressed_at=now))
    _, key = Credentials(settings).add_key("ann", role)
    app = create_app(settings)
    app.state.services = replace(app.state.services, reader=Asked(MemoryLake()))
    with TestClient(app) as browser:
        browser.post("/login", data={"key": key}, follow_redirects=False)
        page = browser.get("/sources").text
    assert "stopped for good: the disk is full" in page
    assert "● waiting" in page
    assert re.findall(r'action="/jobs/(\w+)/resume"', page) == offered


def test_the_first_page_counts_preliminary_alerts_that_wait_and_are_late(tmp_path):
    settings = load(home=tmp_path, kafka={"preliminary_topic": "early"})
    assert preliminaries(settings) == (0, 0)
    waiting = {"f": Waiting("a", "r", 1), "g": Waiting("b", "r", 10**18)}
    place_file(settings).write(Place(PublishOffset(-1), PublishOffset(-1), waiting))
    assert preliminaries(settings) == (2, 1)
    assert preliminaries(load(home=tmp_path)) == (0, 0)
