"""A report by mail: its sentences as text, its files attached."""

from __future__ import annotations

import mimetypes
from collections.abc import Sequence
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid
from pathlib import Path

from infra.config.report_sections import MailSettings
from infra.errors import Retryable
from infra.process.mail_server import send_mail
from reporting.document.content import Report
from reporting.document.text import harmless_text, shown


def send_report(
    mail: MailSettings, to: Sequence[str], report: Report, files: Sequence[Path]
) -> None:
    """Send it to all addresses in one mail.

    Raises `Usage` where no server is set, `Retryable` when the server does not take it.
    """
    refused = send_mail(mail, message_of(mail.sender, to, report, files))
    if refused:
        raise Retryable(f"mail server {mail.host}:{mail.port} refused {', '.join(refused)}")


def message_of(
    sender: str, to: Sequence[str], report: Report, files: Sequence[Path]
) -> EmailMessage:
    """The mail. The same report has the same id, so that one sent twice is shown once."""
    message = EmailMessage()
    # A header must not be steered by a host name: `cut` leaves no line break.
    message["Subject"] = harmless_text(f"Headgate: {_headline(report)}", 200)
    message["From"], message["To"] = sender, ", ".join(to)
    message["Date"] = format_datetime(report.made_at)
    stem = files[0].name if files else report.name
    message["Message-ID"] = make_msgid(f"{stem}.{report.made_at:%Y%m%d%H%M%S}", "headgate")
    message.set_content(text_of(report))
    for file in files:
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        main, _, sub = kind.partition("/")
        message.add_attachment(file.read_bytes(), maintype=main, subtype=sub, filename=file.name)
    return message


def text_of(report: Report) -> str:
    """The report in a few lines, for who reads it on the way."""
    lines = [_headline(report), "", *(harmless_text(sentence, 400) for sentence in report.lead)]
    lines += [f"{tile.label}: {shown(tile.value, tile.kind)}" for tile in report.tiles]
    if report.arrival is not None:
        lines += ["", *report.arrival.sentences()]
    return "\n".join(lines) + "\n"


def _headline(report: Report) -> str:
    whose = f", tenant {report.tenant}" if report.tenant else ""
    if report.headline:
        return harmless_text(report.headline, 200) + whose
    about = f" {report.subject}" if report.subject else ""
    return f"{report.title}{about}, {report.interval}{whose}"
