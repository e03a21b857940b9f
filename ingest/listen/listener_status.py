"""Where the listener stands, as its process leaves it for `status`, `doctor` and the metrics."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import psutil

from infra.config.settings import Settings
from infra.errors import Fatal
from infra.runtime.machine_checks import Finding, check_certificate
from infra.storage.state_file import StateFile
from ingest.listen.tls import certificate_files

STATUS_SECONDS = 2.0
"""How often it is written."""
_LATE_SECONDS = 30.0


@dataclass(frozen=True)
class ListenerStatus:
    """Counts are since the process began."""

    pid: int
    started_at: float
    at: float
    addresses: tuple[str, ...]
    """What it listens on, such as `tcp 127.0.0.1:5514`."""
    messages: dict[str, int] = field(default_factory=dict)
    """Messages that Kafka has, by topic."""
    bytes: int = 0
    waiting_messages: int = 0
    waiting_bytes: int = 0
    waits_seconds: float = 0.0
    """Since when the oldest message waits for Kafka."""
    retried: int = 0
    never: int = 0
    """Messages that Kafka refused for good; they are kept in `<home>/listen`."""
    refused: int = 0
    """Broken or too long messages; they are in the topic, each with its reason."""
    connections: int = 0
    turned_away: dict[str, int] = field(default_factory=dict)
    """Connections and requests that were not taken, by reason."""
    udp_dropped: dict[str, int] = field(default_factory=dict)
    """Datagrams that the kernel dropped, by address; none where it does not tell."""

    def ill(self, now: float) -> str | None:
        """Why it is not well; None: it is."""
        # One that was killed leaves a status that is not old yet.
        if now - self.at > _LATE_SECONDS or not psutil.pid_exists(self.pid):
            return "it does not run"
        if self.waits_seconds > _LATE_SECONDS:
            return f"Kafka took nothing for {self.waits_seconds:.0f} s"
        return None


def listener_folder(settings: Settings) -> Path:
    """What the listener keeps on disk."""
    return settings.home.absolute() / "listen"


def _file(settings: Settings) -> StateFile[ListenerStatus]:
    return StateFile(
        listener_folder(settings) / "status.json",
        ListenerStatus,
        "remove it; the listener writes it anew",
        newer_keys=True,
    )


def write_listener_status(settings: Settings, status: ListenerStatus) -> None:
    """Leave it for readers; whole or not at all."""
    _file(settings).write(status)


def read_listener_status(settings: Settings) -> ListenerStatus | None:
    """What it left last; None: it never ran."""
    return _file(settings).read()


def first_status(addresses: tuple[str, ...]) -> ListenerStatus:
    """The status of this process, before anything came."""
    now = time.time()
    return ListenerStatus(os.getpid(), now, now, addresses)


def listener_findings(settings: Settings) -> Iterator[Finding]:
    """How the listener of the settings does, for `headgate doctor` and `headgate status`."""
    files = certificate_files(settings.listen)
    if files is not None:
        yield check_certificate(files)
    try:
        status = read_listener_status(settings)
    except Fatal as error:
        yield Finding("listener", "its status cannot be read", str(error))
        return
    if status is None:
        yield Finding("listener", "it never ran", "headgate listen, or headgate up, runs it")
        return
    trouble = status.ill(time.time())
    if trouble is not None:
        yield Finding("listener", f"{trouble}{_waiting(status)}", _remedy(status))
        return
    taken = f"{sum(status.messages.values())} messages to Kafka since {_utc(status.started_at)}"
    yield Finding("listener", f"{taken}{_waiting(status)}{_losses(status)}")


def _remedy(status: ListenerStatus) -> str:
    if status.waits_seconds > _LATE_SECONDS:
        return "headgate doctor looks at the broker; what is read waits meanwhile"
    return "headgate listen, or headgate up, starts it; its log says why it ended"


def _waiting(status: ListenerStatus) -> str:
    return f"; {status.waiting_messages} wait" if status.waiting_messages else ""


def _losses(status: ListenerStatus) -> str:
    dropped = sum(status.udp_dropped.values())
    counts = {
        "datagrams dropped by the kernel": dropped,
        "connections or requests turned away": sum(status.turned_away.values()),
        "messages refused by Kafka for good": status.never,
    }
    return "".join(f"; {count} {what}" for what, count in counts.items() if count)


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%MZ")
