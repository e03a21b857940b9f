"""`headgate up --broker embedded`: a broker for one machine, beside the jobs, in the home.

It is a broker like any other, with its log in `<home>/kafka`: what was acknowledged is there after
a restart, and a machine that fails takes it along. It listens on loopback and asks nobody who they
are; whatever sends logs from elsewhere goes through a forwarder on this machine.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from infra.config.settings import Settings
from infra.errors import Fatal, HeadgateError, Usage
from infra.kafka.client import Broker, ensure_topics, require_free

HEAP = "512m"
LOOK_SECONDS = 2.0
_LONGEST_PAUSE = 60.0
_OWN = re.compile(r"(127\.0\.0\.1|localhost):(\d{1,5})")


def broker_folder(settings: Settings) -> Path:
    """Where its log lies."""
    return settings.home.absolute() / "kafka"


def embedded_port(settings: Settings) -> int:
    """The port that it is to listen on; raises `Usage` where the settings mean another broker."""
    kafka = settings.kafka
    own = _OWN.fullmatch(kafka.bootstrap)
    if own is None:
        raise Usage(
            f"kafka.bootstrap is {kafka.bootstrap}: the embedded broker is at 127.0.0.1:PORT; "
            "leave out --broker embedded, or take the bootstrap out of the settings"
        )
    if kafka.protocol != "PLAINTEXT" or kafka.user is not None:
        raise Usage(
            f"kafka.protocol is {kafka.protocol}: the embedded broker speaks PLAINTEXT, on "
            "loopback alone; leave out --broker embedded, or the protocol and user"
        )
    port = int(own[2])
    properties = broker_folder(settings) / "server.properties"
    # Written once, at its first start: a broker at another port would never answer.
    if properties.exists() and f"PLAINTEXT://127.0.0.1:{port}," not in properties.read_text(
        "utf-8"
    ):
        raise Usage(
            f"{properties} was made for another port than that of kafka.bootstrap, {port}; set "
            "the bootstrap back, or change both listeners in that file"
        )
    return port


class EmbeddedBroker:
    """The broker of a `with`, started again when it ends by itself."""

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        """Raises `Usage` where the settings mean another broker."""
        self._settings = settings
        self._say = say
        self._port = embedded_port(settings)
        self._broker = Broker(
            broker_folder(settings), self._port, HEAP, settings.kafka.max_message_bytes
        )
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._problem: HeadgateError | None = None
        self._thread = threading.Thread(target=self._watch, name="embedded broker", daemon=True)

    def __enter__(self) -> EmbeddedBroker:
        require_free(self._port, "the embedded broker", "kafka.bootstrap of the settings")
        # Started by the thread that watches it: Linux ends the broker when the thread that
        # started it ends, and so not before us.
        self._thread.start()
        self._ready.wait()
        if self._problem is not None:
            raise self._problem
        try:
            # The broker makes no topic by itself, so a source that is set has one from the start.
            ensure_topics(self._settings, tuple(self._settings.sources))
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """After the jobs: they end in order only while the broker still answers."""
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        try:
            self._broker.start()
        except HeadgateError as error:
            self._problem = error
            # One that was started and did not answer in time must not stay behind.
            self._broker.stop()
            return
        finally:
            self._ready.set()
        self._say(f"broker: at {self._broker.address}, in {self._broker.folder}")
        pause = LOOK_SECONDS
        while not self._stop.wait(pause):
            if self._broker.ended is None:
                pause = LOOK_SECONDS
                continue
            self._say(f"broker: ended by itself ({self._broker.ended}); started again")
            pause = self._again(pause)
        self._broker.stop()

    def _again(self, pause: float) -> float:
        """Start it again; how long until the next look."""
        try:
            self._broker.start()
        except Fatal as error:
            self._say(f"broker: {error}")
            return min(_LONGEST_PAUSE, pause * 2)
        return LOOK_SECONDS
