"""The body that a webhook gets: the alert itself, or what a product takes.

Text of logs never becomes markup, a mention or a link: it goes where the product reads plain
text, or is escaped, and what a client would link by itself is broken as analysts do it
(`http[:]//`, `[@]`). Sources of the formats:

- Slack: https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks/ and
  https://docs.slack.dev/reference/block-kit/blocks/
- Teams: https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/ and
  https://adaptivecards.io/explorer/ (1.4)
- PagerDuty: https://developer.pagerduty.com/docs/send-alert-event
- Jira: https://developer.atlassian.com/cloud/jira/platform/rest/v3/api-group-issues/ and
  https://developer.atlassian.com/cloud/jira/platform/apis/document/structure/
- TheHive 5: https://docs.strangebee.com/thehive/api-docs/ (create alert)
- DFIR-IRIS: https://docs.dfir-iris.org/latest/operations/api/ (alerts/add); ids of severities and
  states as its first start makes them (source/app/post_init.py of iris-web)
- CACAO: https://docs.oasis-open.org/cacao/security-playbooks/v2.0/ (identifiers, 10.10)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from alerts.delivery.alert_message import alert_status
from infra.config.webhook_section import WebhookSettings
from infra.errors import Usage

FIRST_ONLY = ("jira", "thehive", "iris")
"""Forms that make something new of each body: they get an alert once, not each revision."""

TEMPLATE_NAMES = (
    "title", "level", "state", "summary", "entity", "rule", "time", "count", "text", "links"
)  # fmt: skip
"""What a template may name, as $name; `text`: all of it, a line each."""

Link = tuple[str, str]

_LINKED = re.compile(r"(?i)://|@|\b(?:mailto|tel|www)(?=[:.])")
_CONTROL = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]+"
)
_SAFE_ADDRESS = re.compile(r"[^\s<>|\"\\()\[\]`{}^]+")
"""What could end a link's own markup is percent-encoded in a right address."""
_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")

_MOST_TEMPLATE = 64_000
_MOST_WRITTEN = 8_000
"""Letters of what a template makes: the products take no more than some thousands."""

_PAGER_SEVERITY = {"critical": "critical", "high": "error", "medium": "warning"}
_PAGER_ACTION = {"triaged": "acknowledge", "closed": "resolve"}
_HIVE_SEVERITY = {"medium": 2, "high": 3, "critical": 4}
_IRIS_SEVERITY = {"informational": 2, "low": 3, "medium": 4, "high": 5, "critical": 6}
_IRIS_NEW = 2
_PLAYBOOK = re.compile(r"playbook--[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""A CACAO playbook's id, which a rule's author writes into `headgate.runbook`."""


class AlertView:
    """What all forms say of an alert, each text harmless and bounded."""

    def __init__(self, alert: dict[str, Any], console_url: str | None) -> None:
        rule = alert.get("rule") or {}
        entity = alert.get("entity") or {}
        self.alert_id = str(alert.get("alert_id") or "")
        self.level = str(rule.get("level") or "")
        self.state = alert_status(alert)
        self.title = plain(alert.get("title") or rule.get("name"), 200) or "Alert"
        self.summary = plain(alert.get("summary"), 1500)
        self.event_time = str(alert.get("event_time") or "")
        self.entity = plain(f"{entity.get('type')} {entity.get('value')}", 200)
        self.rule_id = plain(rule.get("id"), 120)
        self.runbook = plain(rule.get("runbook"), 1000)
        self.facts = [
            ("Level", self.level),
            ("State", plain(f"{self.state}, revision {alert.get('revision')}", 100)),
            ("About", self.entity),
            ("Rule", plain(rule.get("name"), 200)),
            ("Last event", plain(self.event_time, 60)),
            ("Findings", plain(alert.get("count"), 20)),
        ]
        if playbook := _PLAYBOOK.search(str(rule.get("runbook") or "")):
            self.facts.append(("CACAO playbook", playbook.group()))
        self.links = [*_console(self.alert_id, console_url), *_runbook(rule.get("runbook"))]
        self.written = ""
        """What a hook's own template made of it, which then stands for all the rest."""

    @property
    def lines(self) -> list[str]:
        """All of it, a line each."""
        if self.written:
            return self.written.splitlines()
        runbook = [] if any(name == "Runbook" for name, _ in self.links) else [self.runbook]
        lines = [self.summary, *(f"{name}: {text}" for name, text in self.facts), *runbook]
        return [line for line in lines if line]


def plain(value: object, most: int) -> str:
    """Text of at most `most` characters, on one line, in which no client sees link or mention."""
    text = _CONTROL.sub(" ", "" if value is None else str(value)).strip()
    return _cut(_LINKED.sub(_broken, text), most)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "\u2026"


def _broken(match: re.Match[str]) -> str:
    word = match.group()
    return {"://": "[:]//", "@": "[@]"}.get(word, f"[{word}]")


def _console(alert_id: str, console_url: str | None) -> list[Link]:
    if not console_url or not alert_id:
        return []
    return [("Open in the console", f"{console_url.rstrip('/')}/alerts/{quote(alert_id, safe='')}")]


def _runbook(runbook: object) -> list[Link]:
    """The rule's runbook, where it is nothing but an address; a rule's author wrote it."""
    text = str(runbook or "").strip()
    try:
        is_address = urlsplit(text).scheme in ("https", "http") and bool(urlsplit(text).hostname)
    except ValueError:
        return []
    return [("Runbook", text)] if is_address and _SAFE_ADDRESS.fullmatch(text) else []


def values_of(view: AlertView) -> dict[str, str]:
    """What the names of a template stand for."""
    facts = dict(view.facts)
    return {
        "title": view.title,
        "level": view.level,
        "state": view.state,
        "summary": view.summary,
        "entity": view.entity,
        "rule": facts["Rule"],
        "time": view.event_time,
        "count": facts["Findings"],
        "text": "\n".join(view.lines),
        "links": "\n".join(f"{name}: {url}" for name, url in view.links),
    }


def template_text(hook: WebhookSettings) -> str | None:
    """The hook's template of an alert's text, if it has one; raises `Usage` for a file that cannot
    be read, or is too long."""
    if hook.template_file is None:
        return None
    file: Path = hook.template_file
    try:
        with file.open(encoding="utf-8") as text:
            content = text.read(_MOST_TEMPLATE + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise Usage(f"webhook {hook.name}: template_file {file} cannot be read ({error})") from None
    if len(content) > _MOST_TEMPLATE:
        raise Usage(
            f"webhook {hook.name}: template_file {file} has more than {_MOST_TEMPLATE} letters"
        )
    return content


def check_templates(hook: WebhookSettings) -> None:
    """Raises `Usage` for a template that names what there is not."""
    for what, text in (("subject", hook.subject), ("template", template_text(hook))):
        template = Template(text or "")
        if not template.is_valid():
            raise Usage(f"webhook {hook.name}: {what}: a $ stands alone; write $$ for a dollar")
        unknown = sorted(set(template.get_identifiers()) - set(TEMPLATE_NAMES))
        if unknown:
            known = ", ".join(f"${name}" for name in TEMPLATE_NAMES)
            raise Usage(f"webhook {hook.name}: {what}: no ${unknown[0]}; there are {known}")


def _by_template(view: AlertView, hook: WebhookSettings) -> None:
    """Let the hook's own templates say it, where it has some."""
    values = values_of(view)
    if text := template_text(hook):
        written = Template(text).substitute(values).splitlines()
        lines = (_CONTROL.sub(" ", line).strip() for line in written)
        view.written = _cut("\n".join(line for line in lines if line), _MOST_WRITTEN)
    if hook.subject:
        title = Template(hook.subject).substitute(values)
        view.title = _cut(_CONTROL.sub(" ", title).strip(), 200) or view.title


def webhook_body(
    hook: WebhookSettings, secret: str, body: bytes, console_url: str | None = None
) -> bytes:
    """The body for a hook of a queued alert (JSON as on the topic), UTF-8 JSON.

    `secret`: goes into the body of pagerduty alone, as its routing key.
    """
    if hook.form == "headgate":
        return body
    view = AlertView(msgspec.json.decode(body), console_url)
    _by_template(view, hook)
    return msgspec.json.encode(_FORMS[hook.form](view, hook, secret))


def _slack(view: AlertView, _: WebhookSettings, __: str) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = [{"type": "header", "text": _slack_text(view.title, 150)}]
    texts = [view.written]
    if not view.written:
        fields = [_slack_text(f"{k}: {v}") for k, v in view.facts]
        blocks.append({"type": "section", "fields": fields})
        texts = [view.summary, *([] if len(view.links) > 1 else [view.runbook])]
    blocks += [{"type": "section", "text": _slack_text(text)} for text in texts if text]
    if view.links:
        links = "  ".join(f"<{_slack_escaped(url)}|{name}>" for name, url in view.links)
        markup = {"type": "mrkdwn", "text": links, "verbatim": True}
        blocks.append({"type": "context", "elements": [markup]})
    # What a notification shows; `mrkdwn` off, so that neither stars nor ticks mean anything.
    text = _slack_escaped(f"{view.level}: {view.title}")
    return {"text": text, "mrkdwn": False, "blocks": blocks}


def _slack_text(text: str, most: int = 2000) -> dict[str, Any]:
    shown = text
    # The limits count what is sent, and an escaped letter is up to five.
    while len(_slack_escaped(shown)) > most:
        shown = shown[: len(shown) * 3 // 4] + "\u2026"
    return {"type": "plain_text", "text": _slack_escaped(shown) or " ", "emoji": False}


def _slack_escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _teams(view: AlertView, _: WebhookSettings, __: str) -> dict[str, Any]:
    def block(text: str, **keys: Any) -> dict[str, Any]:
        # A TextBlock and a FactSet read Markdown, a TextRun does not.
        return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text, **keys}]}

    head = block(view.title, weight="Bolder", size="Medium")
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [head, *map(block, view.lines)],
    }
    if view.links:
        card["actions"] = [
            {"type": "Action.OpenUrl", "title": name, "url": url} for name, url in view.links
        ]
    content = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return {"type": "message", "attachments": [content]}


def _pagerduty(view: AlertView, _: WebhookSettings, secret: str) -> dict[str, Any]:
    action = _PAGER_ACTION.get(view.state, "trigger")
    event: dict[str, Any] = {
        "routing_key": secret, "event_action": action, "dedup_key": view.alert_id
    }  # fmt: skip
    # These name the incident by its key alone, and need no payload.
    if action != "trigger":
        return event
    payload = {
        "summary": view.title,
        "source": view.entity,
        "severity": _PAGER_SEVERITY.get(view.level, "info"),
        "class": view.rule_id,
        "custom_details": {"Text": view.written} if view.written else {
            **dict(view.facts), "Summary": view.summary, "Runbook": view.runbook
        },
    }  # fmt: skip
    if view.event_time:
        payload["timestamp"] = view.event_time
    links = [{"href": url, "text": name} for name, url in view.links]
    return event | {"payload": payload, "client": "Headgate", "links": links}


def _jira(view: AlertView, hook: WebhookSettings, _: str) -> dict[str, Any]:
    def paragraph(text: str, url: str = "") -> dict[str, Any]:
        run: dict[str, Any] = {"type": "text", "text": text}
        if url:
            run["marks"] = [{"type": "link", "attrs": {"href": url}}]
        return {"type": "paragraph", "content": [run]}

    content = [*map(paragraph, view.lines), *(paragraph(name, url) for name, url in view.links)]
    return {
        "fields": {
            "project": {"key": hook.project},
            "issuetype": {"name": hook.issue_type},
            "summary": view.title,
            "description": {"type": "doc", "version": 1, "content": content},
            "labels": ["headgate", f"headgate-{view.level}"],
        }
    }


def _thehive(view: AlertView, _: WebhookSettings, __: str) -> dict[str, Any]:
    # Its description is Markdown: each mark is escaped, as CommonMark allows for all of ASCII's.
    lines = [_PUNCTUATION.sub(r"\\\1", line) for line in view.lines]
    alert: dict[str, Any] = {
        "type": "headgate",
        "source": "headgate",
        "sourceRef": view.alert_id,
        "title": view.title,
        "description": "\n\n".join(lines),
        "severity": _HIVE_SEVERITY.get(view.level, 1),
        "tags": ["headgate", f"level:{view.level}"],
    }
    if view.event_time:
        alert["date"] = int(datetime.fromisoformat(view.event_time).timestamp() * 1000)
    urls = [url for _, url in view.links]
    return alert | ({"externalLink": urls[0]} if urls else {})


def _iris(view: AlertView, hook: WebhookSettings, _: str) -> dict[str, Any]:
    alert: dict[str, Any] = {
        "alert_title": _unmarked(view.title),
        "alert_description": "\n".join(map(_unmarked, view.lines)),
        "alert_source": "headgate",
        "alert_source_ref": view.alert_id,
        "alert_severity_id": _IRIS_SEVERITY.get(view.level, 1),
        "alert_status_id": _IRIS_NEW,
        "alert_customer_id": hook.customer,
        "alert_tags": f"headgate,level:{view.level}",
    }
    if view.event_time:
        # As IRIS' own examples have it: a time without a zone.
        alert["alert_source_event_time"] = view.event_time.removesuffix("Z")
    links = [f"{name}: {url}" for name, url in view.links[1:]]
    alert |= {"alert_note": "\n".join(links)} if links else {}
    return alert | ({"alert_source_link": view.links[0][1]} if view.links else {})


def _unmarked(text: str) -> str:
    """Where a product may read HTML or Markdown, and may not: no mark that either would take."""
    return text.replace("<", "\u2039").replace(">", "\u203a").replace("](", "] (")


_FORMS: dict[str, Callable[[AlertView, WebhookSettings, str], dict[str, Any]]] = {
    "slack": _slack,
    "teams": _teams,
    "pagerduty": _pagerduty,
    "jira": _jira,
    "thehive": _thehive,
    "iris": _iris,
}


def webhook_wants(hook: WebhookSettings, alert: dict[str, Any]) -> bool:
    """Whether an alert goes to a hook: by whose both are, level, rule, and types of entities."""
    if hook.tenant is not None and alert.get("tenant_uid") != hook.tenant:
        return False
    rule = alert.get("rule") or {}
    if rule.get("level") not in hook.levels:
        return False
    if hook.rules and rule.get("id") not in hook.rules:
        return False
    # Also those it names besides: a correction makes a device of an address, and whoever was told
    # of the alert has to hear of its end.
    entities = [alert.get("entity") or {}, *(alert.get("entities") or ())]
    return not hook.entities or any(entity.get("type") in hook.entities for entity in entities)
