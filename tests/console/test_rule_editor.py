"""The rule editor as HTTP: checked, kept, overtaken, copied; what was typed always comes back."""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from alerts.rulebook.rule_copy import copied_text, new_text
from alerts.rulebook.rule_texts import check_text
from api.app import create_app
from api.credentials import Credentials
from infra.config.settings import Settings, load
from infra.errors import Usage
from infra.process import subprocesses
from tests.api.desk import audited
from tests.api.routes.test_rule_changes import COUNTING, GOOD
from tests.full import rest_full

ID = "3f0b8a44-6d0c-4b53-9d7a-2a6a1c0f4a10"
OTHER = GOOD.replace(ID, "3f0b8a44-6d0c-4b53-9d7a-2a6a1c0f4a11").replace("odd_tool", "odd_two")
PREVIEW = (
    "import json; print(json.dumps({'since': '2026-11-20T00:00:00+00:00', 'findings': 3, "
    "'events': 40, 'step_seconds': 3600, 'by_time': {'2026-11-20T04:00:00+00:00': 3}, 'shown': "
    "[{'event_time': '2026-11-20T04:10:00+00:00', 'source': 'sshd', 'ip': '10.0.0.5', "
    "'user_name': 'root', 'host_name': None, 'event_uid': 'u:0', 'snippet': '<b>odd</b>'}]}))"
)
WINDOWS = PREVIEW.replace("'events'", "'counted': 12, 'notes': ['<i>cut</i>'], 'events'")
BACKTEST = (
    "import json; side = lambda n, d: {'alerts': n, 'rules': [{'id': 'x', 'title': 'Odd tool', "
    "'level': 'high', 'findings': 7, 'alerts': n, 'note': ''}], 'by_day': {d: n}, 'examples': []}; "
    "row = {'raised': '2026-11-20T04:10:00Z', 'level': 'high', 'title': 'Only mine', 'snippet': "
    "'s', 'entity_type': 'user', 'entity': 'bob', 'count': 2}; "
    "print(json.dumps({'sides': {'new': side(4, '2026-11-20'), 'old': side(3, '2026-11-21')}, "
    "'difference': {'alerts': {'gained': 2, 'lost': 1, 'same': 2}, 'findings': {}, 'examples': "
    "{'gained': [row], 'lost': [], 'same': []}}}))"
)

NOTHING = (
    "import json; side = {'alerts': 0, 'rules': [{'id': 'x', 'title': 'Odd tool', 'level': 'high', "
    "'findings': 0, 'alerts': 0, 'events': 0, 'note': ''}], 'by_day': {}, 'examples': []}; "
    "print(json.dumps({'sides': {'new': side}}))"
)
QUIET = NOTHING.replace("'events': 0", "'events': 9")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "odd_tool.yml").write_text(GOOD)
    alerts = {"bundled": False, "rules": [str(tmp_path / "rules")]}
    return load(home=tmp_path, api={"token": "t" * 32}, alerts=alerts)


@pytest.fixture
def people(settings: Settings) -> Callable[..., TestClient]:
    """Browsers of people who are signed in, each with a key of a role."""
    app = create_app(settings)
    yield lambda name, role="engineer": _browser(app, settings, name, role)
    app.state.services.rule_jobs.close()


def _browser(app: Any, settings: Settings, name: str, role: str) -> TestClient:
    _, key = Credentials(settings).add_key(name, role)
    browser = TestClient(app, raise_server_exceptions=False, follow_redirects=False)
    assert browser.post("/login", data={"key": key}).status_code == 303
    return browser


def fields(page: str) -> dict[str, str]:
    """The fields of the editor's form as a browser would send them."""
    hidden = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page)
    known = {name: html.unescape(value) for name, value in hidden}
    written = re.search(r"<textarea name=\"text\"[^>]*>\n(.*?)</textarea>", page, re.S)
    assert written is not None
    # HTML sends the lines of a textarea with CRLF.
    return known | {"text": html.unescape(written[1]).replace("\n", "\r\n")}


def opened(browser: TestClient, query: str = f"rule={ID}") -> dict[str, str]:
    answer = browser.get(f"/rule-editor?{query}")
    assert answer.status_code == 200, answer.text
    return fields(answer.text)


def test_an_own_rule_is_changed_and_its_file_has_just_what_was_typed(people, settings):
    ann = people("ann")
    form = opened(ann)
    assert form["text"].replace("\r\n", "\n") == GOOD
    form |= {"text": form["text"].replace("level: high", "level: low"), "reason": "less loud"}
    saved = ann.post(f"/rule-editor?rule={ID}", data=form)
    assert saved.status_code == 303
    assert saved.headers["location"] == f"/rules/{ID}?saved={ID}"
    file = settings.home / "rules" / "odd_tool.yml"
    assert file.read_text() == GOOD.replace("level: high", "level: low")
    page = ann.get(saved.headers["location"]).text
    assert f'data-saved="{ID}"' in page
    assert "changed by ann" in page
    assert "less loud" in page
    (change,) = [row for row in audited(settings) if row["act"] == "rule.change"]
    assert (change["who"], change["target"]) == ("ann", ID)


def test_what_is_refused_comes_back_as_it_was_typed_with_the_line(people, settings):
    ann = people("ann")
    form = opened(ann)
    typed = form["text"].replace("condition: selection", "condition: selektion </textarea>")
    refused = ann.post(f"/rule-editor?rule={ID}", data=form | {"text": typed, "reason": "a try"})
    assert refused.status_code == 422
    assert "Not saved." in refused.text
    assert "the text is refused: line 6" in html.unescape(refused.text)
    again = fields(refused.text)
    assert again["text"] == typed
    assert 'value="a try"' in refused.text
    assert again["version"] == form["version"]
    assert (settings.home / "rules" / "odd_tool.yml").read_text() == GOOD
    empty = ann.post(f"/rule-editor?rule={ID}", data=form | {"text": ""})
    assert empty.status_code == 422


def test_who_comes_second_is_told_who_was_first_and_what_saving_would_undo(people, settings):
    ann, bob = people("ann"), people("bob")
    first, second = opened(ann), opened(bob)
    first |= {"text": first["text"].replace("level: high", "level: low"), "reason": "too loud"}
    assert ann.post("/rule-editor", data=first).status_code == 303
    second["text"] = second["text"].replace("title: Odd tool", "title: Odder tool")
    late = bob.post("/rule-editor", data=second)
    assert late.status_code == 412
    words = html.unescape(re.sub(r"<[^>]+>", "", late.text))
    assert "ann changed the rule" in words
    assert "too loud" in words
    assert "-level: low" in words
    assert "+level: high" in words
    again = fields(late.text)
    assert again["text"] == second["text"]
    file = settings.home / "rules" / "odd_tool.yml"
    assert "level: low" in file.read_text(), "nothing is overwritten unseen"
    # Looked at, it may take the place of the other.
    assert bob.post("/rule-editor", data=again).status_code == 303
    assert "title: Odder tool" in file.read_text()


@pytest.mark.full
def test_a_rule_that_was_taken_away_meanwhile_can_be_kept_anew(people, settings):
    (settings.home / "rules" / "two.yml").write_text(OTHER)
    ann, bob = people("ann"), people("bob")
    form = opened(bob)
    gone = opened(ann) | {"act": "remove"}
    silent = ann.post("/rule-editor", data=gone)
    assert silent.status_code == 422
    assert "say why" in silent.text
    assert ann.post("/rule-editor", data=gone | {"reason": "no use"}).status_code == 303
    late = bob.post("/rule-editor", data=form)
    assert "took the rule away" in late.text
    kept = bob.post("/rule-editor", data=fields(late.text))
    assert kept.status_code == 303, kept.text
    assert (settings.home / "rules" / "odd_tool.yml").read_text() == GOOD


@pytest.mark.full
def test_a_rule_that_was_taken_away_is_written_again_from_its_last_text(people, settings):
    (settings.home / "rules" / "two.yml").write_text(OTHER)
    ann = people("ann")
    removed = ann.post("/rule-editor", data=opened(ann) | {"act": "remove", "reason": "no use"})
    page = html.unescape(ann.get(removed.headers["location"]).text)
    assert "The rule is taken away." in page
    again = re.search(r'href="/rule-editor\?([^"]+)">Write it again', page)
    assert again is not None
    text = re.search(r'href="(/rules/[^"]+/versions/[^"]+)">Its last text', page)
    assert text is not None
    assert "Write it again" in ann.get(text[1]).text
    form = opened(ann, again[1])
    assert form["text"].replace("\r\n", "\n") == GOOD
    assert ann.post("/rule-editor", data=form).status_code == 303
    assert (settings.home / "rules" / "odd_tool.yml").read_text() == GOOD
    assert "taken away" not in ann.get(removed.headers["location"]).text, "it is there again"
    eve = people("eve", "viewer")
    assert "Write it again" not in eve.get(text[1]).text
    assert ann.get(f"/rule-editor?rule={ID[:-1]}9&version=x").status_code == 404


@pytest.mark.full
def test_a_bundled_rule_is_copied_and_switched_off_by_the_copy(tmp_path):
    (tmp_path / "own").mkdir()
    settings = load(home=tmp_path, api={"token": "t" * 32}, alerts={"rules": [tmp_path / "own"]})
    ann = _browser(create_app(settings), settings, "ann", "engineer")
    lead = ann.get("/rule-editor?rule=sudo_wrong_password")
    assert lead.status_code == 303
    form = opened(ann, lead.headers["location"].partition("?")[2])
    copied = form["copy"]
    assert f'id: "{copied}"' in form["text"] or f"{copied}, type: derived" in form["text"]
    assert "name: sudo_wrong_password_own" in form["text"]
    saved = ann.post("/rule-editor", data=form | {"switch_off": "1"})
    assert saved.status_code == 303, saved.text
    assert (tmp_path / "own" / "sudo_wrong_password_own.yml").is_file()
    bundled = ann.get(f"/rules/{copied}").text
    assert "off (ann: replaced by" in html.unescape(bundled)


@pytest.mark.full
def test_a_copy_of_a_rule_that_others_count_does_not_switch_it_off_by_itself(people, settings):
    (settings.home / "rules" / "many.yml").write_text(COUNTING)
    ann = people("ann")
    page = ann.get(f"/rule-editor?copy={ID}").text
    assert "would see nothing then" in page
    box = re.search(r'<input type="checkbox" name="switch_off"[^>]*>', page)
    assert box is not None
    assert "checked" not in box[0]
    counting = ann.get("/rules/many_odd").text
    assert "Backtest on 7 days" in counting
    assert "Preview on 7 days" in counting
    assert "Preview on 7 days" in ann.get(f"/rules/{ID}").text


def test_the_check_says_lines_remedies_oddities_and_tests_and_keeps_nothing(people, settings):
    ann = people("ann")
    csrf = opened(ann)["csrf"]

    def check(text: str) -> str:
        answer = ann.post("/rule-editor/check", data={"csrf": csrf, "text": text})
        assert answer.status_code == 200
        return answer.text

    good = check(GOOD)
    assert "It loads" in good
    assert "Its tests: 2 passed" in good
    assert 'data-mark="odd-line"' in good, "no author, no description"
    bad = check(GOOD.replace("service: sshd}", "service: sshdd}"))
    assert 'data-mark="bad" data-line="5"' in bad
    assert 'data-jump="5"' in bad
    failing = check(GOOD.replace("an odd one", "an even one"))
    assert "1 failed" in failing
    assert "no rule yet" in check("# nothing")
    assert "200,000 characters" in check("")
    assert [file.name for file in (settings.home / "rules").iterdir()] == ["odd_tool.yml"]


@pytest.mark.full
def test_the_difference_to_what_is_in_force_is_shown(people):
    ann = people("ann")
    form = opened(ann)
    form["text"] = form["text"].replace("level: high", "level: <i>low</i>")
    shown = ann.post("/rule-editor/diff", data=form).text
    assert '<span class="del">-level: high' in shown
    assert '<span class="add">+level: &lt;i&gt;low&lt;/i&gt;' in shown
    new = opened(ann, "")
    assert ann.post("/rule-editor/diff", data=new).status_code == 422


@pytest.mark.full
def test_versions_are_compared_and_an_old_text_can_be_taken_up(people):
    ann = people("ann")
    form = opened(ann)
    old = form["version"]
    form["text"] = form["text"].replace("level: high", "level: low")
    assert ann.post("/rule-editor", data=form).status_code == 303
    page = ann.get(f"/rules/{ID}/versions/{old}")
    assert "+level: low" in page.text
    assert f"/rule-editor?rule={ID}&amp;version={old}" in page.text
    assert "level: high" in opened(ann, f"rule={ID}&version={old}")["text"]
    assert ann.get(f"/rules/{ID}/versions/nothing").status_code == 404


@pytest.mark.parametrize(
    ("program", "kind", "words"),
    rest_full(
        1,
        [
            (
                PREVIEW,
                "preview",
                ("3</b><span>findings", "The first 1:", "&lt;b&gt;odd&lt;/b&gt;", '"step":3600'),
            ),
            (
                WINDOWS,
                "preview",
                ("12</b><span>findings of the rules", "&lt;i&gt;cut", 'href="/events/u%3A0"'),
            ),
            (BACKTEST, "backtest", ("2 alerts more, 1 fewer", "Only mine", '"step":86400')),
            (
                NOTHING,
                "backtest",
                ("0</b><span>events that it looks at", "No event that it looks at"),
            ),
            (QUIET, "backtest", ("9</b><span>events that it looks at", "found nothing in these")),
        ],
    ),
)
def test_a_draft_is_tried_on_history_and_shown_as_bars_and_rows(
    people, monkeypatch, program, kind, words
):
    monkeypatch.setattr(subprocesses, "_command_line", [sys.executable, "-c", program])
    ann = people("ann")
    form = opened(ann) | {"kind": kind, "since": "-7d"}
    answer = ann.post("/rule-tries", data=form)
    assert answer.status_code == 200, answer.text
    job = re.search(r'id="try-([^"]+)"', answer.text)
    assert job is not None
    text = answer.text
    while 'data-state="done"' not in text:
        assert "hx-get" in text, text
        text = ann.get(f"/rule-tries/{job[1]}").text
    for word in words:
        assert word in html.unescape(text) or word in text, text
    ended = ann.post(f"/rule-tries/{job[1]}/end", data={"csrf": form["csrf"]})
    assert 'data-state="cancelled"' in ended.text


@pytest.mark.full
def test_who_is_no_engineer_tries_rules_in_force_only(people, monkeypatch):
    monkeypatch.setattr(subprocesses, "_command_line", [sys.executable, "-c", PREVIEW])
    eve = people("eve", "analyst")
    assert eve.get("/rule-editor").status_code == 403
    page = eve.get(f"/rules/{ID}").text
    assert "/rule-editor" not in page
    csrf = re.search(r'data-csrf="([^"]+)"', page)
    assert csrf is not None
    asked = {"csrf": csrf[1], "kind": "preview", "since": "-7d"}
    assert eve.post("/rule-tries", data=asked | {"rule": ID}).status_code == 200
    assert eve.post("/rule-tries", data=asked | {"text": GOOD}).status_code == 403


@pytest.mark.parametrize("path", rest_full(1, ["", "/check", "/diff"]))
def test_a_form_of_another_session_changes_nothing(people, settings, path):
    form = opened(people("ann")) | {"text": OTHER}
    assert people("bob").post(f"/rule-editor{path}", data=form).status_code == 403
    assert len(list((settings.home / "rules").iterdir())) == 1


@pytest.mark.full
def test_a_session_that_ended_leads_back_to_the_editor(people):
    ann = people("ann")
    form = opened(ann)
    ann.cookies.clear()
    answer = ann.post(f"/rule-editor?rule={ID}", data=form)
    assert answer.headers["location"] == f"/login?next=%2Frule-editor%3Frule%3D{ID}"
    asked = {"HX-Request": "true", "HX-Current-URL": f"http://testserver/rule-editor?rule={ID}"}
    part = ann.post("/rule-editor/check", data=form, headers=asked)
    assert part.headers["hx-redirect"].endswith(f"&next=%2Frule-editor%3Frule%3D{ID}")


def test_a_new_rule_loads_and_passes_its_tests_as_it_stands(settings):
    checked = check_text(settings, new_text('ann "the" engineer'))
    assert checked.problems == ()
    assert [outcome.passed for outcome in checked.outcomes] == [True, True]
    assert checked.odd == ()


def test_a_copy_keeps_comments_and_takes_its_rule_out_of_a_file_of_several(settings):
    text = f"{COUNTING}---\n# why this is here\n{GOOD}"
    copied = copied_text(text, ID)
    assert "# why this is here" in copied
    assert "Many odd ones" not in copied
    checked = check_text(settings, copied)
    assert (checked.problems, [rule.name for rule in checked.rules]) == ((), ["odd_tool_own"])
    assert checked.rules[0].id != ID
    with pytest.raises(Usage, match="has no line 'id: nothing'"):
        copied_text(text, "nothing")
