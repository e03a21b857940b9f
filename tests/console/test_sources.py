"""The page of sources and jobs: how each job stands, and who may take up one that stopped."""

from __future__ import annotations

import html
import re
import shlex
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from fastapi.testclient import TestClient

from alerts.delivery.publish_offset import PublishOffset
from alerts.preliminary.place import Place, Waiting, place_file
from api.app import create_app
from api.console.pages.sources import shown
from api.credentials import Credentials
from api.services.console.platform_health import preliminaries
from infra.config.settings import load
from infra.runtime.job_status import JobStatus, write_status
from ingest.completeness.gaps import LOOK
from tests.alerts.tuning.history import Asked
from tests.console.test_rule_tuning import csrf_of
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


def administrator(settings, lake=None):
    app = create_app(settings)
    app.state.services = replace(app.state.services, reader=Asked(lake or MemoryLake()))
    browser = TestClient(app, raise_server_exceptions=False, follow_redirects=False)
    _, key = Credentials(settings).add_key("chandra", "admin")
    assert browser.post("/login", data={"key": key}).status_code == 303
    return browser


def test_a_job_is_resumed_once_and_the_page_says_who_takes_it_up(tmp_path):
    settings, now = load(home=tmp_path), time.time()
    write_status(settings, JobStatus("rollup", "failed", at=now, why="the disk is full"))
    admin = administrator(settings)
    form = {"csrf": csrf_of(admin.get("/sources").text)}
    done = admin.post("/jobs/rollup/resume", data=form).headers["location"]
    page = admin.get(done).text
    assert "<b>Job rollup</b> is asked to go on." in page
    assert "No driver runs" in page
    assert (tmp_path / "spool" / "resume" / "rollup").exists()
    write_status(settings, JobStatus("rollup", "running", at=now, progressed_at=now))
    late = admin.post("/jobs/rollup/resume", data=form)
    assert late.status_code == 422
    assert "job rollup is running; only one that was stopped for good is resumed" in late.text


def test_a_job_that_lost_messages_leads_to_what_is_missing_and_not_to_the_next_failure(tmp_path):
    settings = load(home=tmp_path)
    write_status(settings, JobStatus("ingest", "failed", at=time.time(), why=f"gone; {LOOK}"))
    admin = administrator(settings)
    page = admin.get("/sources").text
    assert "/jobs/ingest/resume" not in page
    assert 'href="/sources/gaps">What is missing' in page
    gaps = admin.get("/sources/gaps").text
    assert "Nothing is missing" in gaps
    form = {"csrf": csrf_of(gaps), "statement": "0" * 12}
    silent = admin.post("/sources/gaps", data=form)
    assert silent.status_code == 422
    assert "say why" in silent.text
    refused = admin.post("/sources/gaps", data=form | {"reason": "disk"})
    assert "there is no gap to accept" in refused.text
    assert not (tmp_path / "spool").joinpath("resume").exists()


@pytest.mark.full
def test_new_fields_and_dead_letters_are_shown_with_what_text_cannot_show(tmp_path):
    now = datetime.now(UTC)
    received = now - timedelta(hours=1)
    drift = {"source": "zeek:dns", "first_seen": received, "rows": 3, "event_uid": "e1"}
    dead = {"source": "sshd", "received_at": received, "time": received, "mode": "live"}
    lake = (
        MemoryLake()
        .add("ops.drift", [drift | {"field": "tls.ja4", "baseline": False},
                           drift | {"field": "answers", "baseline": True}])
        .add("silver.event", [dead | {"event_uid": f"d{n}:0", "record_ids": [f"d{n}"],
                                      "dead_letter_reason": "no line"} for n in range(52)])
    )  # fmt: skip
    admin = administrator(load(home=tmp_path), lake)
    page = admin.get("/sources").text
    assert "tls.ja4" in page
    assert "answers" not in page, "it had that from the beginning"
    letters = admin.get("/sources/dead?source=sshd&since=-24h").text
    assert "The newest 50 of 52" in letters
    none = admin.get("/sources/dead?source=zeek:dns&since=-24h").text
    assert "Of what arrived of zeek:dns since" in none
    assert "--source sshd --dry-run" in letters
    hostile = admin.get("/sources/dead", params={"source": "a'; id", "since": "-24h"}).text
    (command,) = re.findall(r'data-copy="(headgate reparse [^"]+)"', hostile)
    assert shlex.split(html.unescape(command))[-3:] == ["--source", "a'; id", "--dry-run"]
    assert shown(b"\xff\xfe login")["hex"].startswith("000000  ff fe 20")
    assert shown(b"a plain line")["hex"] == ""


def test_the_first_page_counts_preliminary_alerts_that_wait_and_are_late(tmp_path):
    settings = load(home=tmp_path, kafka={"preliminary_topic": "early"})
    assert preliminaries(settings) == (0, 0)
    waiting = {"f": Waiting("a", "r", 1), "g": Waiting("b", "r", 10**18)}
    place_file(settings).write(Place(PublishOffset(-1), PublishOffset(-1), waiting))
    assert preliminaries(settings) == (2, 1)
    assert preliminaries(load(home=tmp_path)) == (0, 0)


@pytest.mark.full
def test_a_list_that_was_cut_says_so_and_leads_to_all(tmp_path):
    lake, now = MemoryLake(), datetime.now(UTC)
    new = [{"source": "dns", "field": f"f{n}", "first_seen": now, "rows": 1, "event_uid": "e",
            "baseline": False} for n in range(50)]  # fmt: skip
    lake.add("ops.drift", new)
    admin = administrator(load(home=tmp_path), lake)
    assert "are shown;" not in admin.get("/sources").text
    lake.add("ops.drift", [new[0] | {"field": "f-late"}])
    page = admin.get("/sources").text
    assert page.count("The newest 50 are shown;") == page.count("are shown;") == 1
    (sql,) = re.findall(r'href="(/search\?sql=[^"]+ops\.drift[^"]*)">SQL has all', page)
    assert "first_seen" in html.unescape(sql)
