"""A statement asked as a job, with all its rows; a saved query with what its runs came to."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from api.services.searches.saved_queries import QueryStore
from api.wire.jobs import QueryContent, SavedQuery
from infra.config.settings import load
from infra.errors import Usage
from tests.api.plain_desk import PlainDesk
from tests.console.conftest import serve
from tests.console.test_rule_tuning import csrf_of
from tests.wait import until

MANY = "SELECT entity_value, rule_name FROM gold.alert_current ORDER BY entity_value"
TOKEN = "t" * 32


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> PlainDesk:
    return PlainDesk(tmp_path_factory.mktemp("search-runs"), devices=3)


@pytest.fixture(scope="module")
def site(desk: PlainDesk) -> Iterator[str]:
    yield from serve(desk.app)


@pytest.fixture(scope="module")
def ann(desk: PlainDesk) -> TestClient:
    return desk.browser("ann", "analyst")


def sent(client: TestClient, path: str, **fields: str) -> str:
    """Send a form; the page that it leads to."""
    csrf = csrf_of(client.get("/search?sql=SELECT+1").text)
    answered = client.post(path, data={"csrf": csrf} | fields)
    assert answered.status_code == 303, answered.text
    return answered.headers["location"]


def over(client: TestClient, page: str) -> str:
    """The page of a run once that is over."""

    def state() -> str | None:
        text = client.get(page).text
        return None if 'data-state="queued"' in text or 'data-state="running"' in text else text

    return html.unescape(until(state, what="the run is over") or "")


def test_a_statement_as_a_job_has_all_its_rows_in_four_forms(ann: TestClient) -> None:
    page = sent(ann, "/search/runs", sql=MANY)
    text = over(ann, page)
    assert "<b>3 rows</b>" in text
    assert "02:00:00:00:00:02" in text
    csv = ann.get(f"{page}/rows.csv")
    assert csv.text.splitlines()[0] == "entity_value,rule_name"
    assert len(csv.text.splitlines()) == 4
    assert csv.headers["content-disposition"].endswith('.csv"')
    assert len(ann.get(f"{page}/rows.ndjson").text.splitlines()) == 3
    assert ann.get(f"{page}/rows.parquet").content[:4] == b"PAR1"
    arrow = ann.get(f"{page}/rows.arrows")
    assert pa.ipc.open_stream(arrow.content).read_all().num_rows == 3
    assert f'href="{page}/rows.arrows">Arrow</a>' in text
    assert ann.get(f"{page}/rows.xls").status_code == 404


def test_why_a_job_failed_stands_on_its_page(ann: TestClient) -> None:
    text = over(ann, sent(ann, "/search/runs", sql="SELECT nowhere FROM gold.alert_current"))
    assert "It could not be done" in text
    assert "nowhere" in text


def test_the_times_of_the_filters_are_those_of_the_job(ann: TestClient) -> None:
    asked = "SELECT count(*) AS n FROM gold.alert_current WHERE event_time >= :since"
    none = over(ann, sent(ann, "/search/runs", sql=asked, since="-1h"))
    every = over(ann, sent(ann, "/search/runs", sql=asked, since="2000-01-01"))
    assert '<td class="num"><code>0</code>' in none
    assert '<td class="num"><code>3</code>' in every


def test_a_run_is_its_owners_and_an_administrators(desk: PlainDesk, ann: TestClient) -> None:
    page = sent(ann, "/search/runs", sql="SELECT 7 AS seven")
    over(ann, page)
    assert desk.browser("bob", "analyst").get(page).status_code == 404
    assert desk.browser("root", "admin").get(page).status_code == 200
    assert sent(ann, f"{page}/end").startswith("/search?sql=SELECT")
    assert ann.get(page).status_code == 404


def test_the_runs_of_a_saved_query_are_on_its_page(ann: TestClient, desk: PlainDesk) -> None:
    page = sent(ann, "/search/queries", sql=MANY, name="devices", doc="who alerted", every="1440")
    text = html.unescape(ann.get(page).text)
    assert "No run is kept" in text
    assert "every 24 h, as ann" in text
    run = sent(ann, f"{page}/run")
    assert "<b>3 rows</b>" in over(ann, run)
    assert "/search/queries/devices" in ann.get(run).text, "the way back"
    text = html.unescape(ann.get(page).text)
    assert f'href="{run}"' in text
    assert f'href="{run}/rows.csv"' in text
    eve = desk.browser("eve", "viewer")
    assert "No run is kept" in eve.get(page).text, "ann's are hers"
    assert "Remove" not in eve.get(page).text
    assert sent(ann, f"{page}/remove").startswith("/search?sql=SELECT")
    assert ann.get(page).status_code == 404
    assert ann.get(run).status_code == 200, "and stays until its time is over"
    assert sent(ann, f"{run}/end").startswith("/search?sql=SELECT"), "its query has no page now"


def test_a_saved_query_is_edited_with_all_it_has_and_no_other_is_overwritten(
    ann: TestClient, desk: PlainDesk
) -> None:
    queries = desk.app.state.services.queries
    content = QueryContent(sql="SELECT 1 AS n", doc="how many", every_minutes=15, keep_days=3)
    queries.put("ann", "mine", content)
    page = html.unescape(ann.get("/search/queries/mine").text)
    edit = re.search(r'href="([^"]+)">Edit<', page)
    assert edit is not None
    form = html.unescape(ann.get(edit[1]).text)
    assert 'value="how many"' in form
    assert '<option value="15" selected>every 15 min' in form
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form))
    wish = {"name": "mine", "sql": "SELECT 2 AS n", "doc": "how many", "every": "15"}
    csrf = {"csrf": csrf_of(form)}
    bill = desk.browser("bill", "analyst")
    theirs = {"csrf": csrf_of(bill.get("/search?sql=SELECT+1").text)}
    refused = bill.post("/search/queries", data=theirs | wish)
    assert refused.status_code == 422
    assert "'mine' is there already, saved by ann" in html.unescape(refused.text)
    edited = {name: hidden[name] for name in ("edits", "looked_at", "keep_days")}
    assert ann.post("/search/queries", data=csrf | wish | edited).status_code == 303
    kept = queries.get("mine")
    assert (kept.sql, kept.every_minutes, kept.keep_days) == ("SELECT 2 AS n", 15, 3)
    queries.put("bob", "mine", content)
    stale = edited | {"looked_at": "2020-01-01T00:00:00Z"}
    late = html.unescape(ann.post("/search/queries", data=csrf | wish | stale).text)
    assert "'mine' was changed by bob meanwhile" in late
    assert queries.get("mine").sql == "SELECT 1 AS n"
    other = ann.post("/search/queries", data=csrf | wish | stale | {"name": "mine-too"})
    assert other.status_code == 303


def test_of_many_who_save_a_query_at_once_one_does(tmp_path: Path) -> None:
    queries = QueryStore(load(home=tmp_path))
    content = QueryContent(sql="SELECT 1 AS n")
    queries.put("ann", "mine", content)

    def unchanged(known: SavedQuery) -> None:
        if known.who != "ann":
            raise Usage(f"changed by {known.who}")

    def saved(number: int) -> bool:
        try:
            queries.put(f"key-{number}", "mine", content, unchanged)
        except Usage:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(saved, range(8))) == 1


def test_a_schedule_whose_owner_is_gone_says_that_it_is_at_rest(
    ann: TestClient, desk: PlainDesk
) -> None:
    queries = desk.app.state.services.queries
    queries.put("left", "orphan", QueryContent(sql="SELECT 1", every_minutes=60))
    page = ann.get("/search/queries/orphan").text
    assert "Its schedule is at rest." in page
    assert "next <time" not in page
    queries.put("ann", "orphan", QueryContent(sql="SELECT 1", every_minutes=60))
    assert "at rest" not in ann.get("/search/queries/orphan").text


@pytest.mark.full
def test_from_the_box_to_a_file_and_a_saved_query_by_mouse(browse, site: str) -> None:
    watched = browse(signed_in=False).sign_in(TOKEN)
    page = watched.go("/search?sql=" + MANY.replace(" ", "+"))
    page.click("text=All rows as a file")
    page.wait_for_selector("text=3 rows")
    with page.expect_download() as begun:
        page.click("a:has-text('CSV')")
    content = Path(begun.value.path()).read_text("utf-8")
    assert content.splitlines()[0] == "entity_value,rule_name"
    page.click("text=Edit the statement")
    page.click("text=Save it …")
    page.fill("form.saving [name=name]", "by-mouse")
    page.select_option("form.saving [name=every]", "60")
    page.click("form.saving button")
    page.wait_for_selector("text=No run is kept")
    page.click("text=Run it now")
    page.wait_for_selector("text=3 rows")
    assert page.locator("html[data-going]").count() == 0
    assert not watched.errors
    assert not watched.violations()


def test_a_result_that_is_removed_just_now_is_not_there_and_no_fault(
    ann: TestClient, desk: PlainDesk
) -> None:
    page = sent(ann, "/search/runs", sql=MANY)
    over(ann, page)
    job_id = page.rpartition("/")[2]
    # As the sweep leaves it between its first file and its last.
    desk.app.state.services.searches.file(job_id).unlink()
    for path in (page, f"{page}/rows.csv", f"{page}/rows.arrows", f"{page}/rows.parquet"):
        answered = ann.get(path)
        assert answered.status_code == 404, answered.text.partition("data-failed-why")[2][:400]
        assert "removed just now, or its time is over" in answered.text


def test_words_of_a_saved_query_that_deceive_the_eye_are_marked(ann: TestClient) -> None:
    doc = "p\u0430ypal \u202egnp.exe"
    text = ann.get(sent(ann, "/search/queries", sql="SELECT 1", name="odd", doc=doc)).text
    assert 'class="alike" title="U+0430 CYRILLIC SMALL LETTER A, looks like Latin a"' in text
    assert "\u202e" not in text
