"""Hands a mail to the mail server of the settings (section reports.mail)."""

from __future__ import annotations

import smtplib
import ssl
from email.message import EmailMessage

from infra.config.report_sections import MailSettings
from infra.config.secrets import either
from infra.errors import Retryable, Usage

_SECONDS = 60
_LONGEST = 200


def send_mail(mail: MailSettings, message: EmailMessage) -> tuple[str, ...]:
    """Send it to all whom it names in one go; returns addresses that were refused while others
    were taken.

    Raises `Usage` where no server is set, `Retryable` when the server takes it for nobody.
    """
    if mail.host is None:
        raise Usage("reports.mail.host is not set; name the mail server")
    try:
        with _connect(mail) as server:
            if mail.user is not None:
                password = either(mail.password, mail.password_file, "reports.mail.password") or ""
                server.login(mail.user, password)
            return tuple(server.send_message(message))
    except (OSError, smtplib.SMTPException) as error:
        raise Retryable(f"mail server {mail.host}:{mail.port}: {_why(error)}") from None


def _connect(mail: MailSettings) -> smtplib.SMTP:
    host = mail.host or ""
    context = ssl.create_default_context(cafile=None if mail.ca_file is None else str(mail.ca_file))
    if mail.security == "tls":
        return smtplib.SMTP_SSL(host, mail.port, timeout=_SECONDS, context=context)
    server = smtplib.SMTP(host, mail.port, timeout=_SECONDS)
    if mail.security == "starttls":
        try:
            server.starttls(context=context)
        except BaseException:
            server.close()
            raise
    return server


def _why(error: Exception) -> str:
    if isinstance(error, smtplib.SMTPResponseException):
        words = error.smtp_error
        text = words.decode("utf-8", "replace") if isinstance(words, bytes) else str(words)
        return f"{error.smtp_code} {_short(text)}"
    return _short(str(getattr(error, "strerror", None) or error))


def _short(text: str) -> str:
    # A server's words may have line breaks, and go into one line of a log.
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "\u2026"
