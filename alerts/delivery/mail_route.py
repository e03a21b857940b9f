"""Alerts by mail: those of some seconds together, in one mail, by templates."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from email.message import EmailMessage
from email.utils import format_datetime
from string import Template

import msgspec

from alerts.delivery.webhook_forms import (
    AlertView,
    check_templates,
    template_text,
    values_of,
)
from alerts.delivery.webhook_queue import WaitingWebhook
from infra.config.report_sections import MailSettings
from infra.config.webhook_section import WebhookSettings
from infra.errors import Usage
from infra.process.clock import clock
from infra.process.mail_server import send_mail

MAIL_SUBJECT = "Headgate: $level: $title"
MAIL_TEXT = "$title\n\n$text\n$links\n"
_LONGEST_SUBJECT = 200
_RULER = "\n" + "-" * 72 + "\n\n"


def check_mail(hook: WebhookSettings, mail: MailSettings) -> None:
    """Raises `Usage` for a route that cannot be used as it is set up."""
    if mail.host is None:
        raise Usage(f"webhook {hook.name}: form mail needs a server; set reports.mail.host")
    check_templates(hook)


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
    template = Template(template_text(hook) or MAIL_TEXT)
    message.set_content(_RULER.join(template.substitute(values_of(view)) for view in views))
    return message


def _subject(hook: WebhookSettings, views: Sequence[AlertView]) -> str:
    first = Template(hook.subject or MAIL_SUBJECT).substitute(values_of(views[0]))
    more = f" and {len(views) - 1} more" if len(views) > 1 else ""
    # On one line: a title must not begin a header of its own.
    line = " ".join(first.split())
    return line[: _LONGEST_SUBJECT - len(more)] + more
