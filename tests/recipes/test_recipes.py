"""CONTRIBUTING's recipes, carried out: new files in one folder of a copy of the tree, nothing else.

Each is then used as a person would use it, by the command or over HTTP.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("headgate", "infra", "ingest", "enrich", "alerts", "reporting", "api")

SOURCE = '''
"""Door openers, as they write to syslog."""

import re

from ingest.parsing.ocsf import AUTHENTICATION, SUCCESS, device, event, metadata, unmapped
from ingest.parsing.source import Context, Event
from ingest.parsing.syslog import Line, SyslogSource

PRODUCT = {"name": "doord", "vendor_name": "Doors"}
OPENED = re.compile(r"opened for (?P<user>[a-z]+)")


def read(line: Line, context: Context) -> Event | None:
    match = OPENED.fullmatch(line.text)
    if match is None:
        return None
    return event(
        AUTHENTICATION, 1, line.stamp, status_id=SUCCESS, message=line.text,
        metadata=metadata(PRODUCT, line.stamp, log_provider=line.program),
        user={"name": match["user"]}, device=device(line.host), unmapped=unmapped(line.rest),
    )


SOURCES = (SyslogSource("doord", frozenset({"doord"}), PRODUCT, read),)
'''
RULE = """
title: A door was opened by root
name: door_by_root
id: 1c0d9a44-6b1f-4f0c-8a55-0d8f5a0d6a11
level: high
logsource: {product: ocsf, category: authentication}
detection:
  opened: {status_id: 1, user.name: root}
  condition: opened
headgate:
  tests:
    match: [{status_id: 1, user.name: root}]
    no_match: [{status_id: 1, user.name: ann}]
"""
REPORT = '''
"""How many events there were."""

from reporting.document.content import Report, Tile

NAME = "tally"
DOC = "How many events an interval has."
TABLES = ("silver.event",)


def compose(request):
    many = request.value("SELECT count(*) FROM silver.event")
    tiles = [Tile("Events", many)]
    return Report(NAME, "Tally", request.interval, request.made_at, [], tiles)
'''
ENDPOINT = '''
"""How many events there are."""

from fastapi import APIRouter

from api.problems import responses
from api.routes.access import Here

router = APIRouter(prefix="/api/v1/tally", tags=["tally"])


@router.get("", summary="How many events?", responses=responses(503))
def tally(services: Here) -> dict[str, int]:
    """All events."""
    rows = services.reader.rows("SELECT count(*) AS n FROM silver.event", needs=("silver.event",))
    return {"events": rows[0]["n"]}
'''
ASK = """
import sys
from fastapi.testclient import TestClient
import headgate.packages
from api.app import create_app
from infra.config.settings import load
with TestClient(create_app(load(home=sys.argv[1], api={"token": "t" * 32}))) as client:
    refused = client.get("/api/v1/tally").status_code
    answer = client.get("/api/v1/tally", headers={"Authorization": "Bearer " + "t" * 32})
    print(refused, answer.status_code, answer.json())
"""
PAGE = '''
"""How many events there are, as a page."""

from fastapi import Request
from fastapi.responses import Response

from api.console.page import Page, console_router
from api.console.render import respond
from api.console.request import Here, Signed

router = console_router()
PAGE = Page("tally", "Tally", router, "/tally", "overview", 90, "y", group="look")


@router.get("/tally")
def tally(request: Request, services: Here, session: Signed) -> Response:
    """All events."""
    rows = services.reader.rows("SELECT count(*) AS n FROM silver.event", needs=("silver.event",))
    return respond(request, "tally.html", page=PAGE, count=rows[0]["n"])
'''
TEMPLATE = """
{% extends "base.html" %}
{% block main %}<h1>{{ count|shown }} events</h1>{% endblock %}
"""
LOOK = """
import sys
from fastapi.testclient import TestClient
import headgate.packages
from api.app import create_app
from infra.config.settings import load
app = create_app(load(home=sys.argv[1], api={"token": "t" * 32}))
with TestClient(app, follow_redirects=False) as browser:
    stranger = browser.get("/tally")
    print(stranger.status_code, stranger.headers["location"])
    browser.post("/login", data={"key": "t" * 32})
    page = browser.get("/tally").text
    link = '<a href="/tally" title="Tally" aria-current="page">'
    print("<h1>0 events</h1>" in page, link in page)
"""
JOB = '''
"""Job `tally`: counts events as they come."""

from ingest.tables import EVENT


def start(lake, *, once=False):
    """Each batch's ledger row has how many there were."""

    def batch(arrived, run):
        run.counts["read"] = arrived.count()

    trigger = None if once else 10.0
    events = lake.stream(EVENT, job="tally")
    return lake.each_batch("tally", events, batch, trigger_seconds=trigger)
'''
COMMAND = '''
"""The command `tally`."""


def build(subparsers):
    """Add the command."""
    tally = subparsers.add_parser("tally", help="how many there are")
    tally.add_argument("--plus", type=int, default=0)
    tally.set_defaults(run=run)


def run(arguments, settings):
    """Print it."""
    print(f"tally {41 + arguments.plus} in {settings.home.name}")
    return 0
'''


class Tree:
    """A copy of the packages, and what was changed in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in PACKAGES:
            skipped = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, folder / name, ignore=skipped)
        self._before = self._files()

    def _files(self) -> dict[Path, bytes]:
        files = (path for path in self.folder.rglob("*") if path.is_file())
        return {path: path.read_bytes() for path in files if "__pycache__" not in path.parts}

    def write(self, name: str, text: str) -> None:
        """A new file."""
        path = self.folder / name
        assert not path.exists()
        path.write_text(text.lstrip("\n"), "utf-8")

    def extend(self, name: str, old: str, new: str) -> None:
        """Put `new` in front of `old` in a file that is there."""
        path = self.folder / name
        text = path.read_text("utf-8")
        assert text.count(old) == 1, old
        path.write_text(text.replace(old, new + old), "utf-8")

    def touched(self) -> set[str]:
        """Folders in which a file is new or another than before."""
        return {
            str(path.parent.relative_to(self.folder))
            for path, content in self._files().items()
            if self._before.get(path) != content
        }

    def headgate(self, *words: str) -> str:
        """What a command prints, run in the copy."""
        return self.python("-m", "headgate.cli", *words)

    def python(self, *words: str) -> str:
        """What Python prints with the copy's packages, not the checkout's."""
        done = subprocess.run(
            [sys.executable, "-P", *words],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=os.environ
            | {
                "PYTHONPATH": str(self.folder),
                "HEADGATE_HOME": str(self.folder / "home"),
                "HEADGATE_CONFIG": "",
            },
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "tree")


def test_a_source_is_one_module_in_a_family(tree: Tree) -> None:
    tree.write("ingest/sources/linux/doord.py", SOURCE)
    assert tree.touched() == {"ingest/sources/linux"}
    listed = tree.headgate("sources", "--output", "json")
    assert "doord" in listed
    (tree.folder / "lines").write_text(
        "<86>1 2026-11-20T12:01:00Z gate doord 7 - - opened for root\n"
    )
    event = json.loads(tree.headgate("parse", "--source", "doord", "lines"))
    assert (event["class_uid"], event["user"]["name"]) == (3002, "root")


def test_a_rule_is_one_file_with_its_tests(tree: Tree) -> None:
    tree.write("alerts/rules/door_by_root.yml", RULE)
    assert tree.touched() == {"alerts/rules"}
    tested = json.loads(tree.headgate("rules", "test", "door_by_root", "--output", "json"))
    assert [row["passed"] for row in tested] == [True, True]


@pytest.mark.full
def test_a_report_is_one_module(tree: Tree, empty_tables: Path) -> None:
    shutil.copytree(empty_tables / "silver" / "event", tree.folder / "home/lake/silver/event")
    before = tree.touched()
    tree.write("reporting/reports/tally.py", REPORT)
    assert tree.touched() - before == {"reporting/reports"}
    listed = json.loads(tree.headgate("report", "list", "--output", "json"))
    about = "How many events an interval has."
    assert {"what": "report", "name": "tally", "tenant": "", "about": about} in listed
    page, figures = tree.headgate("report", "run", "tally", "--interval", "2026-11-20").split()
    assert "<dt>Events</dt><dd>0</dd>" in Path(tree.folder / page).read_text("utf-8")
    tiles = json.loads(Path(tree.folder / figures).read_text("utf-8"))["figures"]
    assert tiles == [{"name": "Events", "value": 0, "before": None, "unit": "number"}]


@pytest.mark.full
def test_an_endpoint_is_one_module_behind_the_token(tree: Tree, empty_tables: Path) -> None:
    shutil.copytree(empty_tables, tree.folder / "home/lake")
    before = tree.touched()
    tree.write("api/routes/tally.py", ENDPOINT)
    assert tree.touched() - before == {"api/routes"}
    answered = tree.python("-c", ASK, str(tree.folder / "home"))
    assert answered.strip() == "401 200 {'events': 0}"


@pytest.mark.full
def test_a_console_page_is_a_module_and_its_template(tree: Tree, empty_tables: Path) -> None:
    shutil.copytree(empty_tables, tree.folder / "home/lake")
    before = tree.touched()
    tree.write("api/console/pages/tally.py", PAGE)
    tree.write("api/console/pages/tally.html", TEMPLATE)
    assert tree.touched() - before == {"api/console/pages"}
    seen = tree.python("-c", LOOK, str(tree.folder / "home")).splitlines()
    assert seen == ["303 /login?next=%2Ftally", "True True"]


@pytest.mark.full
def test_a_job_is_a_module_and_a_line_of_its_package(tree: Tree) -> None:
    tree.write("enrich/tally_job.py", JOB)
    tree.extend(
        "enrich/registration.py",
        '        JobSpec("sessions"',
        '        JobSpec("tally", 65, _tally, history=True),\n',
    )
    tree.extend(
        "enrich/registration.py",
        "def _no_rollup(",
        "def _tally() -> Starter:\n    from enrich.tally_job import start\n\n"
        "    return start\n\n\n",
    )
    assert tree.touched() == {"enrich"}
    assert "rollup, tally, logins" in " ".join(tree.headgate("run", "--help").split())
    started = tree.python("-c", "import enrich.tally_job as job; print(job.start.__name__)")
    assert started.strip() == "start"


@pytest.mark.full
def test_a_command_is_a_module_and_a_line_of_its_package(tree: Tree) -> None:
    tree.write("enrich/tally_cli.py", COMMAND)
    tree.extend(
        "enrich/registration.py",
        '        Command("assets"',
        '        Command("tally", "how many there are", _tally, "ask the data"),\n',
    )
    tree.extend(
        "enrich/registration.py",
        "def _no_rollup(",
        "def _tally() -> Build:\n    from enrich.tally_cli import build\n\n    return build\n\n\n",
    )
    assert tree.touched() == {"enrich"}
    assert re.search(r"^  tally +how many there are$", tree.headgate("--help"), re.M)
    assert tree.headgate("tally", "--plus", "1").strip() == "tally 42 in home"
