"""A mail server of the tests' own that keeps what it takes, or refuses it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

import pytest

from infra.kafka.client import free_port


class Mailbox:
    """What came by SMTP. `full`: all is refused for now; `unknown`: an address that it refuses."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.full = False
        self.unknown = ""

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, to: str, _: Any) -> str:
        if to == self.unknown:
            return "550 no such user"
        envelope.rcpt_tos.append(to)
        return "250 fine"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        if self.full:
            return "452 mailbox is full"
        mail = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        self.mails.append(mail)
        return "250 taken"


@contextmanager
def mail_server(**tls: Any) -> Iterator[tuple[Mailbox, int]]:
    """A mailbox behind a port of 127.0.0.1. `tls`: what aiosmtpd's controller takes for it.

    Skips the test where aiosmtpd, one of the development packages, is not there.
    """
    smtp = pytest.importorskip("aiosmtpd.controller", reason="comes with the development packages")
    box = Mailbox()
    controller = smtp.Controller(box, hostname="127.0.0.1", port=free_port(), **tls)
    controller.start()
    try:
        yield box, controller.port
    finally:
        controller.stop()
