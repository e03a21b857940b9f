"""Alerts by mail: those of some seconds together, in one mail, by templates."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path
from string import Template

import msgspec

from alerts.delivery.webhook_forms import AlertView
from alerts.delivery.webhook_queue import WaitingWebhook
from infra.config.report_sections import MailSettings
from infra.config.webhook_section import WebhookSettings
from infra.errors import Usage
from infra.process.clock import clock
from infra.process.mail_server import send_mail

NAMES = ("title", "level", "state", "summary", "entity", "rule", "time", "count", "text", "links")
"""What a template may name, as $name; `text`: all of it, a line each."""
SUBJECT = "Headgate: $level: $title"
_BODY = "$title\n\n$text\n$links\n"
_MOST_BYTES = 64_000
_LONGEST_SUBJECT = 200
_RULER = "\n" + "-" * 72 + "\n\n"


def check_mail(hook: WebhookSettings, mail: MailSettings) -> None:
    """Raises `Usage` for a route that cannot be used as it is set up."""
    if mail.host is None:
        raise Usage(f"webhook {hook.name}: form mail needs a server; set reports.mail.host")
    for what, text in (("subject", hook.subject or SUBJECT), ("template", _template(hook))):
        template = Template(text)
        if not template.is_valid():
            raise Usage(f"webhook {hook.name}: {what}: a $ stands alone; write $$ for a dollar")
        unknown = sorted(set(template.get_identifiers()) - set(NAMES))
        if unknown:
            known = ", ".join(f"${name}" for name in NAMES)
            raise Usage(f"webhook {hook.name}: {what}: no ${unknown[0]}; there are {known}")


def post_mail(
    hook: WebhookSettings,
    mail: MailSettings,
    waiting: Sequence[WaitingWebhook],
    console_url: str | None,
) -> str:
    """Send these revisions in one mail; returns a sentence about receivers that were refused.

    Raises `Retryable` when the server takes it for nobody.
    """
    # Not tried again for those who were refused: the others would get it each time.
    refused = send_mail(mail, mail_of(hook, mail, waiting, console_url))
    return f"{mail.host} refused {', '.join(refused)}; the others got it" if refused else ""


def mail_of(
    hook: WebhookSettings,
    mail: MailSettings,
    waiting: Sequence[WaitingWebhook],
    console_url: str | None,
) -> EmailMessage:
    """The mail of some revisions. The same ones have the same id, so that a mail sent twice, after
    a crash, is shown once."""
    views = [AlertView(msgspec.json.decode(each.body), console_url) for each in waiting]
    message = EmailMessage()
    message["Subject"] = _subject(hook, views)
    message["From"], message["To"] = hook.sender or mail.sender, ", ".join(hook.to)
    message["Date"] = format_datetime(clock.now())
    keys = hashlib.sha256(" ".join([hook.name, *(each.key for each in waiting)]).encode())
    message["Message-ID"] = f"<{keys.hexdigest()[:32]}@headgate>"
    # Answers of people on holiday to a machine are of no use to anybody (RFC 3834).
    message["Auto-Submitted"] = "auto-generated"
    template = Template(_template(hook))
    message.set_content(_RULER.join(template.substitute(_values(view)) for view in views))
    return message


def _subject(hook: WebhookSettings, views: Sequence[AlertView]) -> str:
    first = Template(hook.subject or SUBJECT).substitute(_values(views[0]))
    more = f" and {len(views) - 1} more" if len(views) > 1 else ""
    # On one line: a title must not begin a header of its own.
    line = " ".join(first.split())
    return line[: _LONGEST_SUBJECT - len(more)] + more


def _values(view: AlertView) -> dict[str, str]:
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


def _template(hook: WebhookSettings) -> str:
    if hook.template_file is None:
        return _BODY
    return _read(hook.template_file, hook.name)


def _read(file: Path, name: str) -> str:
    try:
        with file.open(encoding="utf-8") as text:
            content = text.read(_MOST_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise Usage(f"webhook {name}: template_file {file} cannot be read ({error})") from None
    if len(content) > _MOST_BYTES:
        raise Usage(f"webhook {name}: template_file {file} has more than {_MOST_BYTES} letters")
    return content
