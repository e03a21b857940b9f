"""Views of the alerts: kept by name for one person, opened by their address."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from starlette.datastructures import QueryParams

from api.console.pages.alerts import AlertsAddress
from api.console.time_words import earliest
from api.services.console.entity_lanes import alerts_as_known
from api.services.console.saved_views import MOST_VIEWS, SavedViews
from infra.config.settings import load
from infra.errors import Usage
from tests.api.plain_desk import PlainDesk

FILTER = "q=tunnel&level=high&level=critical&since=-24h&group=entity"


def csrf_of(page: str) -> str:
    token = re.search(r'data-csrf="([^"]+)"', page)
    assert token is not None
    return token[1]


def test_a_filter_is_kept_under_a_name_found_again_and_forgotten(tmp_path):
    desk = PlainDesk(tmp_path)
    ann, bob = desk.browser("ann", "analyst"), desk.browser("bob", "analyst")
    page = ann.get(f"/alerts?{FILTER}&page=3&open=x").text
    sent = re.search(r'name="query" value="([^"]+)"', page)
    assert sent is not None
    form = {"csrf": csrf_of(page), "query": sent[1].replace("&amp;", "&"), "name": "night <shift>"}
    kept = ann.post("/alert-views", data=form)
    assert kept.status_code == 303
    # The page within the list and what lies beside it are no part of a view.
    assert sorted(kept.headers["location"].partition("?")[2].split("&")) == sorted(
        FILTER.split("&")
    )
    page = ann.get(kept.headers["location"]).text
    shown = re.search(r'<a href="(/alerts\?[^"]+)" aria-current="true"><span>night', page)
    assert shown is not None
    assert "night &lt;shift&gt;" in page
    assert "night" not in bob.get("/alerts").text
    gone = ann.post("/alert-views/remove", data=form)
    assert gone.headers["location"].startswith("/alerts?")
    assert "night" not in ann.get("/alerts").text


def test_what_the_page_does_not_know_is_not_kept(tmp_path):
    desk = PlainDesk(tmp_path)
    ann = desk.browser("ann", "read")
    form = {"csrf": csrf_of(ann.get("/alerts").text), "name": "x"}
    assert ann.post("/alert-views", data=form | {"query": "colour=red"}).status_code == 422
    assert ann.post("/alert-views", data=form | {"csrf": "guess"}).status_code == 403
    assert ann.post("/alert-views", data=form | {"name": " "}).status_code == 422
    assert not (tmp_path / "views.json").exists()


def test_a_person_keeps_so_many_and_may_write_over_one(tmp_path):
    views = SavedViews(load(home=tmp_path))
    for number in range(MOST_VIEWS):
        views.keep_view("ann", f"View {number:02}", "level=high")
    views.keep_view("ann", "View 00", "level=low")
    with pytest.raises(Usage, match="remove one first"):
        views.keep_view("ann", "one more", "")
    with pytest.raises(Usage, match="can be printed"):
        views.keep_view("ann", "a\nb", "")
    assert views.views_of("ann")["View 00"] == "level=low"
    assert len(views.views_of("ann")) == MOST_VIEWS
    assert views.views_of("bob") == {}


@pytest.mark.parametrize(
    ("shown", "asked"),
    [
        ("", "status=open"),
        ("lifecycle=closed&level=high&since=-24h", "status=closed&level=high&since=-24h"),
        ("level=high&level=low", "status=open&level=high&level=low"),
        ("lifecycle=new&lifecycle=triaged&lifecycle=closed&verdict=", "verdict=none"),
        ("lifecycle=new", None),
        ("rule_id=a&rule_id=b", None),
    ],
)
def test_the_list_is_copied_as_the_question_that_gives_it_over_rest(shown, asked):
    assert AlertsAddress.of(QueryParams(shown)).rest_query() == asked


def test_a_user_or_host_is_found_by_alerts_that_only_name_it(tmp_path):
    desk = PlainDesk(tmp_path)
    client = desk.client("vic", "viewer")
    alert = client.get("/api/v1/alerts").json()["items"][0]["alert_id"]
    body = client.get(f"/api/v1/alerts/{alert}").json()["body"]
    named = {entity["type"]: entity["value"] for entity in body["entities"]}
    user = named["user"]
    listed = desk.browser("ann", "read").get(f"/alerts?entity={user}").text
    assert f"row-{alert}" in listed
    since = {"since": "2025-01-01", "until": "2026-01-01"}
    reader = desk.app.state.services.reader
    first, last = (earliest(name, text, datetime.now(UTC)) for name, text in since.items())
    about = alerts_as_known(reader, "user", user, first, last, None)
    assert alert in {row["alert_id"] for row in about}
    assert alerts_as_known(reader, "user", "nobody-at-all", first, last, None) == []
