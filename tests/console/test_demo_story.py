"""The demo's story on the first page: as it happens, with its alerts, and what was corrected."""

from __future__ import annotations

import json
import re
from pathlib import Path

from api.services.console.demo_story import FILE, begin_story, demo_story, story_beats
from headgate.demo.demo import STORY, correction
from infra.delta.catalog import table
from tests.alerts.lifecycle.test_alert_fold import NOON, finding, leased
from tests.api.plain_desk import PlainDesk
from tests.headgate.as_code.delta_by_hand import append_rows

FORMER, REAL = "02:00:00:00:00:00", "02:00:00:00:00:09"
ROOT = Path(__file__).parents[2]
BEATS = [
    {"second": "0-5", "what": "`lt-1` guesses", "see": "an alert", "rules": ["Guessing"]},
    {"second": "40", "what": "a late line", "see": "**revision 2**"},
]


def desk_with_story(tmp_path: Path) -> PlainDesk:
    """A desk whose first alert was corrected, and a story of its time."""
    desk = PlainDesk(tmp_path, devices=1)
    desk.batch(finding(0, leased(REAL, hostname="laptop-b"), uid="0-0", rev=2))
    story = {"title": "Two laptops", "began": NOON.timestamp(), "speed": 2.0, "beats": BEATS}
    (tmp_path / FILE).write_text(json.dumps(story))
    return desk


def test_the_story_tells_what_is_over_what_comes_and_which_alert_was_corrected(tmp_path):
    desk = desk_with_story(tmp_path)
    reader = desk.app.state.services.reader
    early = demo_story(desk.settings, reader, NOON.timestamp() + 10)
    assert early is not None
    assert early.seconds == 20
    assert [beat.state for beat in early.beats] == ["now", "ahead"]
    assert [row["entity_value"] for row in early.beats[0].alerts] == [REAL]
    assert [row["previous_entity"] for row in early.corrected] == [FORMER]
    late = demo_story(desk.settings, reader, NOON.timestamp() + 7200)
    assert late is not None
    assert [beat.state for beat in late.beats] == ["over", "over"]
    assert (early.fresh, late.fresh) == (True, False)


def test_a_home_without_a_story_tells_none(tmp_path):
    desk = PlainDesk(tmp_path, devices=1)
    assert demo_story(desk.settings, desk.app.state.services.reader, NOON.timestamp()) is None
    assert not (tmp_path / FILE).exists()


def test_the_first_page_says_plainly_that_an_alert_was_corrected(tmp_path):
    desk = desk_with_story(tmp_path)
    for name in ("gold.rollup", "ops.quality", "ops.ledger", "bronze.record"):
        append_rows(desk.settings.lake_root, table(name), [])
    page = desk.browser("ann", "admin").get("/")
    assert page.status_code == 200, page.text
    story = page.text[page.text.index('class="panel story"') : page.text.index('class="tiles"')]
    words = " ".join(re.sub(r"<[^>]+>", " ", story).split())
    assert re.search(r"names laptop-b now, first named \S+ ?: a DHCP line that came later", words)
    assert "shows who held the address (revision 2)" in words
    assert "corrected: that is no error" in words
    assert "<b>revision 2</b>" in story


def test_the_tutorial_tells_the_same_story(tmp_path):
    page = (ROOT / "docs" / "tutorials" / "demo.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d[\d-]*) \| (.*?) \| ?(.*?) ?\|$", page, re.MULTILINE)
    title, beats = story_beats(STORY / "story.toml")
    assert [(each["second"], each["what"], each["see"]) for each in beats] == [
        (second, what, see.strip()) for second, what, see in rows
    ]
    desk = PlainDesk(tmp_path, devices=0)
    begin_story(desk.settings, STORY / "story.toml", speed=1.0)
    assert json.loads((tmp_path / FILE).read_text())["title"] == title


def test_rules_of_the_story_are_bundled():
    titles = "\n".join(
        file.read_text("utf-8") for file in (ROOT / "alerts" / "rules").rglob("*.yml")
    )
    _, beats = story_beats(STORY / "story.toml")
    for name in (name for beat in beats for name in beat.get("rules", ())):
        assert f"title: {name}\n" in titles, name


def test_the_terminal_says_what_a_revision_corrects():
    holder = {"ip": "10.0.0.1", "hostname": "ws-1\x1b", "previous": {"hostname": "tab-1"}}
    words = correction({"reason": "attribution", "attribution": holder})
    assert words == ("corrected: a DHCP line came late; 10.0.0.1 was not tab-1's then, but ws-1?'s")
    assert correction({"reason": "first", "attribution": holder}) is None
    assert correction({"reason": "attribution", "attribution": {}}) is None
