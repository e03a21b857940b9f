"""Forms of webhooks: bodies that the products take, in which text of logs stays text."""

from __future__ import annotations

import argparse
import base64
import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as settings_of_tests
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from alerts.cli import webhooks
from alerts.delivery.consumer import AlertRevision
from alerts.delivery.webhook import Undelivered, check, post, target_of
from alerts.delivery.webhook_forms import plain, webhook_body, webhook_wants
from alerts.delivery.webhook_queue import Queue, queue_file
from alerts.rulebook.rule_switch import compiled_rules
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import PackStore
from infra.config.settings import Settings, WebhookSettings, load
from infra.errors import Usage
from tests.alerts.delivery.test_webhook import Receiver

FORMS = ("slack", "teams", "pagerduty", "jira", "thehive", "iris")
KEY = "0123456789abcdef0123456789abcdef"
CONSOLE = "https://soc.example.org/headgate/"
CONTRACTS = {
    form: Draft202012Validator(
        json.loads((Path(__file__).parent / f"contract/{form}.schema.json").read_text("utf-8"))
    )
    for form in FORMS
}
OWN = {"jira": {"user": "bot@example.org", "project": "SOC"}}


def hook(form: str, url: str = "https://hook.example/in", **keys: Any) -> WebhookSettings:
    given: dict[str, Any] = {"name": form, "form": form, "secret": KEY, **OWN.get(form, {})}
    if form in ("slack", "teams"):
        return WebhookSettings(**(given | {"secret": url} | keys))
    return WebhookSettings(**(given | {"url": url} | keys))


def alert(text: str = "guessing", **keys: Any) -> dict[str, Any]:
    entity = {"type": "device", "value": text}
    return {
        "alert_id": "a" * 32, "revision": 1, "state": "open", "lifecycle": "new", "title": text,
        "summary": text, "event_time": "2026-03-02T12:00:00.000Z", "entity": entity,
        "entities": [entity, {"type": "ip", "value": "192.0.2.7"}], "count": 3,
        "rule": {"id": "r1", "name": text, "level": "high", "runbook": "https://wiki.example/r1"},
    } | keys  # fmt: skip


def body_of(form: str, alert: dict[str, Any], console: str | None = CONSOLE, **keys: Any) -> Any:
    made = webhook_body(hook(form, **keys), KEY, json.dumps(alert).encode(), console)
    decoded = json.loads(made)
    CONTRACTS[form].validate(decoded)
    return decoded


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for child in value.values() if isinstance(value, dict) else value if isinstance(
        value, list
    ) else ():  # fmt: skip
        yield from strings(child)


EVIL = st.lists(
    st.sampled_from(
        ["<!channel>", "<!here>", "@here", "@channel", "<@U012AB3CD>", "<at>All</at>", "http://e.vil",
         "<http://e.vil|a>", "[a](http://e.vil)", "![a](//e.vil)", "&lt;", "*b*", "`c`", "# h",
         "{{x}}", "[~accountid:1]", "www.e.vil", "mailto:a@e.vil", "\n\n- x", "\u202e", "|", "\\"]
    )
    | st.text(st.characters(exclude_categories=("Cs",)), max_size=20),
    max_size=8,
).map("".join)  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@settings_of_tests(max_examples=30, deadline=None)
@given(text=EVIL)
def test_text_of_logs_becomes_neither_link_nor_mention_nor_markup(form: str, text: str) -> None:
    for runbook in ("https://wiki.example/r1", text):
        rule = {"id": text, "name": text, "level": "high", "runbook": runbook}
        body = body_of(form, alert(text, rule=rule))
        own = (f"{CONSOLE}alerts/{'a' * 32}", runbook, "http://adaptivecards.io/schemas/")
        for string in strings(body):
            rest = re.sub(r"\[@\]|\\\[\\@\\\]", "", string)
            for address in own if runbook != text else (own[0], own[2]):
                rest = rest.replace(address, "")
            # An address alone in a rule's runbook is a link: its author wrote it, no log did.
            is_runbook = runbook == text and (
                string.strip() == text.strip() or f"<{text.strip()}|Runbook>" in string
            )
            assert is_runbook or not re.search(r"://|@|(?i:\bwww\.)|(?i:\bmailto:)", rest)
        if form == "slack":
            for string in strings(
                [block for block in body["blocks"] if block["type"] != "context"]
            ):
                assert not re.search(r"[<>]|&(?!amp;|lt;|gt;)", string)
            assert not re.search(r"[<>]|&(?!amp;|lt;|gt;)", body["text"])
        if form == "iris":
            assert not re.search(r"[<>]|\]\(", body["alert_description"] + body["alert_title"])
        if form == "thehive":
            # CommonMark: what is behind a backslash is the letter itself.
            bare = re.sub(r"\\[!-/:-@\[-`{-~]", "", body["description"])
            assert not re.search(r"[!-/:-@\[-`{-~]", bare)


@given(EVIL, st.integers(2, 40))
def test_a_text_keeps_its_bound_and_says_that_it_was_cut(text: str, most: int) -> None:
    short = plain(text, most)
    assert len(short) <= most
    assert short == plain(text, 10_000) or short.endswith("\u2026")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("text", ["<" * 5000, "a&@ " * 2000, "\U0001f600" * 3000, "://" * 900])
def test_long_texts_fit_the_products_limits(form: str, text: str) -> None:
    body_of(form, alert(text))


@pytest.mark.parametrize("form", FORMS)
def test_an_alert_links_to_the_console_and_to_the_rules_runbook(form: str) -> None:
    linked = json.dumps(body_of(form, alert()))
    assert f"{CONSOLE}alerts/{'a' * 32}" in linked
    assert form == "thehive" or "https://wiki.example/r1" in linked
    assert "soc.example.org" not in json.dumps(body_of(form, alert(), None))


@pytest.mark.parametrize("form", FORMS)
def test_title_and_text_are_by_ones_own_templates(form: str, tmp_path: Path) -> None:
    template = tmp_path / "text.txt"
    template.write_text("Call 4711\n$entity, $count times\n\nIt costs $$5\n")
    made = body_of(form, alert("$level\r\n[x](http://e.vil)"), subject="$level - $title",
                   template_file=template)  # fmt: skip
    every = [text.replace("\\", "") for text in strings(made)]
    assert any(text.startswith("high - $level") for text in every)
    written = "\n".join(every)
    assert "Call 4711" in written
    assert "It costs $5" in written
    assert "revision 1" not in written, "the template stands for all the rest"
    # Neither a name nor a link in what a log said is taken for one.
    assert "http://e.vil" not in written
    body_of(form, alert("<" * 5000), subject="$title" * 20, template_file=template)
    template.write_text("$text\n" * 3000)
    body_of(form, alert("a&@ " * 2000), template_file=template)


def test_a_template_that_cannot_be_used_is_refused_and_one_that_goes_holds_what_waits(
    tmp_path: Path,
) -> None:
    template = tmp_path / "text.txt"
    template.write_text("$password")
    with pytest.raises(Usage, match=r"template: no \$password; there are \$title"):
        check(hook("slack", template_file=template))
    with pytest.raises(Usage, match=r"subject: a \$ stands alone"):
        check(hook("teams", subject="5 $ each"))
    gone = hook("jira", "https://192.0.2.1/in", template_file=tmp_path / "gone.txt")
    with pytest.raises(Undelivered, match=r"gone.txt cannot be read"):
        post(gone, "a:1", json.dumps(alert()).encode(), 1)


@pytest.mark.parametrize(
    ("lifecycle", "action"), [("new", "trigger"), ("triaged", "acknowledge"), ("closed", "resolve")]
)
def test_pagerduty_is_told_what_became_of_the_alert(lifecycle: str, action: str) -> None:
    event = body_of("pagerduty", alert(lifecycle=lifecycle))
    assert event["event_action"] == action
    assert (event["routing_key"], event["dedup_key"]) == (KEY, "a" * 32)
    assert ("payload" in event) == (action == "trigger")


PLAYBOOK = "playbook--300270f9-0e64-42c8-93cc-0927edbe3ae7"


@pytest.mark.parametrize("form", FORMS)
def test_a_playbook_that_the_rules_runbook_names_is_in_the_message(form: str) -> None:
    for runbook in (f"https://soar.example/{PLAYBOOK}.json", f"Run {PLAYBOOK} in the SOAR."):
        rule = alert()["rule"] | {"runbook": runbook}
        message = json.dumps(body_of(form, alert(rule=rule))).replace("\\", "")
        assert PLAYBOOK in message
    assert "CACAO" not in json.dumps(body_of(form, alert()))


def test_iris_gets_the_ids_that_it_knows() -> None:
    made = body_of("iris", alert())
    assert (made["alert_severity_id"], made["alert_status_id"]) == (5, 2)
    assert made["alert_customer_id"] == 1
    assert made["alert_source_link"].startswith(CONSOLE)
    assert made["alert_note"] == "Runbook: https://wiki.example/r1"
    assert made["alert_source_event_time"] == "2026-03-02T12:00:00.000"


def test_thehive_knows_an_alert_by_its_id() -> None:
    made = body_of("thehive", alert())
    assert (made["sourceRef"], made["severity"]) == ("a" * 32, 3)
    assert made["date"] == 1_772_452_800_000


class Product(Receiver):
    """A server that takes what its contract allows, as the product would, and nothing else."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form

    def hook_of_form(self, **keys: Any) -> WebhookSettings:
        url = f"http://127.0.0.1:{self.port}/services/T0/{KEY}"
        return hook(self.form, url, allow_private=True, **keys)

    def judge(self) -> Any:
        """The one body that came, after a look at it and at its headers."""
        ((_, headers, body),) = self.got
        assert headers["Content-Type"] == "application/json"
        assert "Headgate-Signature" not in headers
        account = base64.b64encode(f"bot@example.org:{KEY}".encode()).decode()
        bearer = dict.fromkeys(("thehive", "iris"), f"Bearer {KEY}")
        wanted = ({"jira": f"Basic {account}"} | bearer).get(self.form)
        assert headers.get("Authorization") == wanted
        CONTRACTS[self.form].validate(json.loads(body))
        return json.loads(body)


@pytest.mark.parametrize("form", FORMS)
def test_a_sample_is_taken_by_each_product(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    product = Product(form)
    settings = load(home=tmp_path, webhooks=[product.hook_of_form()])
    assert run(settings, "test", form) == 0
    assert "Sample alert" in json.dumps(product.judge()) or form == "thehive"
    product.answer = 500
    assert run(settings, "test", form) == 1
    said = capsys.readouterr()
    assert "answered 500" in said.err
    assert KEY not in said.out + said.err
    with pytest.raises(Usage, match="no webhook 'nobody'"):
        run(settings, "test", "nobody")


def test_thehive_that_has_the_alert_already_is_content(tmp_path: Path) -> None:
    product = Product("thehive")
    product.answer, product.text = 400, b'{"message": "Alert already exist"}'
    settings = load(home=tmp_path, webhooks=[product.hook_of_form()])
    assert run(settings, "test", "thehive") == 0
    product.text = b'{"message": "source is missing"}'
    assert run(settings, "test", "thehive") == 1


def test_a_filter_by_a_rule_that_nobody_has_is_refused_by_name(tmp_path: Path) -> None:
    product = Product("slack")
    pack = compiled_rules(load(home=tmp_path)).pack
    store = PackStore(store_folder(load(home=tmp_path)))
    store.set_current(store.put(pack))
    hooks = [product.hook_of_form(rules=(pack.rules[0].id, "no-such-rule"))]
    with pytest.raises(Usage, match="no rule 'no-such-rule' in force"):
        run(load(home=tmp_path, webhooks=hooks), "test", "slack")
    assert product.got == []
    hooks = [product.hook_of_form(rules=(pack.rules[0].id, pack.correlations[0].id))]
    assert run(load(home=tmp_path, webhooks=hooks), "test", "slack") == 0


def run(settings: Settings, *words: str) -> int:
    parser = argparse.ArgumentParser()
    webhooks.build(parser.add_subparsers())
    args = parser.parse_args(["webhooks", *words])
    return int(args.run(args, settings))


@pytest.mark.parametrize("form", ["slack", "teams"])
def test_an_address_that_is_a_secret_is_never_said(form: str) -> None:
    for address in (
        f"ftp://h/{KEY}",
        f"https://u:{KEY}@h/",
        f"https://h:{KEY}/",
        f"https://[{KEY}/",
    ):
        with pytest.raises(Usage) as refused:
            check(hook(form, address))
        assert KEY not in str(refused.value)
    assert KEY not in repr(hook(form, f"https://hooks.example/{KEY}"))
    private = hook(form, f"https://127.0.0.1/{KEY}")
    with pytest.raises(Undelivered, match="private, and not allowed") as error:
        post(private, "a:1", json.dumps(alert()).encode(), 1)
    assert KEY not in str(error.value)


def test_pagerduty_has_an_address_of_its_own() -> None:
    target = target_of(WebhookSettings(name="p", form="pagerduty", secret=KEY))
    assert (target.host, target.path) == ("events.pagerduty.com", "/v2/enqueue")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"form": "mattermost"}, "form"),
        ({"form": "slack", "url": "https://h/"}, "leave out url"),
        ({"form": "thehive"}, "needs a url"),
        ({"form": "iris"}, "needs a url"),
        ({"url": "https://h/", "customer": 2}, "iris's alone"),
        ({"url": "https://h/", "to": ["a@b.example"]}, "of mail alone"),
        ({"url": "https://h/", "subject": "$title"}, "gets the alert itself"),
        ({"form": "mail", "to": ["a@b.example"]}, "leave it out"),
        ({}, "needs a url"),
        ({"form": "jira", "url": "https://h/"}, "user and project"),
        ({"url": "https://h/", "project": "SOC"}, "jira's alone"),
        ({"url": "https://h/", "levels": ["urgent"]}, "levels"),
        ({"url": "https://h/", "entities": ["printer"]}, "entities"),
        ({"url": "https://h/", "rule": ["r1"]}, "rule"),
    ],
)
def test_what_is_not_known_is_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(Usage, match=said):
        load(webhooks=[{"name": "h", "secret": "x"} | keys])


def test_a_filter_chooses_by_level_rule_and_types_of_entities() -> None:
    given = alert()
    assert webhook_wants(hook("headgate"), given)
    assert not webhook_wants(hook("headgate", levels=("low",)), given)
    assert webhook_wants(hook("headgate", rules=("r0", "r1")), given)
    assert not webhook_wants(hook("headgate", rules=("r0",)), given)
    assert webhook_wants(hook("headgate", entities=("user", "ip")), given)
    assert not webhook_wants(hook("headgate", entities=("user",)), given)


def test_a_tenants_hook_gets_that_tenants_alerts_alone() -> None:
    theirs, others, nobodys = ({"tenant_uid": name} for name in ("acme", "globex", None))
    of_acme, ours = hook("headgate", tenant="acme"), hook("headgate")
    got = [webhook_wants(of_acme, alert() | whose) for whose in (theirs, others, nobodys)]
    assert got == [True, False, False]
    assert not webhook_wants(of_acme, alert()), "of a release that did not say whose it is"
    assert all(webhook_wants(ours, alert() | whose) for whose in (theirs, others, nobodys))
    with pytest.raises(Usage, match=r"webhooks\.h: no tenant 'acmee'"):
        load(tenants=["acme"], webhooks=[{"name": "h", "secret": "x", "url": "https://h/"}
                                         | {"tenant": "acmee"}])  # fmt: skip


def test_issues_are_made_once_an_alert_and_other_hooks_hear_of_each_revision(
    tmp_path: Path,
) -> None:
    hooks = [hook("jira"), hook("thehive", entities=("user",)), hook("teams")]
    settings = load(home=tmp_path, webhooks=hooks)
    file = queue_file(settings)
    queue = Queue(file)
    put = webhooks._putter(settings)
    user = {"type": "user", "value": "kim"}
    with sqlite3.connect(file) as db:
        for number, keys in enumerate(({}, {"entity": user}, {"state": "closed"}), 1):
            body = alert(revision=number, **keys)
            put(AlertRevision("a", number, 0, body), db)
        put(AlertRevision("b", 1, 0, alert(state="closed")), db)
    rows = [(row["hook"], row["alert_id"], row["revision"]) for row in queue.listed()]
    assert [row for row in rows if row[0] == "jira"] == [("jira", "a", 1)]
    assert [row for row in rows if row[0] == "thehive"] == [("thehive", "a", 2)]
    assert len([row for row in rows if row[0] == "teams"]) == 4
