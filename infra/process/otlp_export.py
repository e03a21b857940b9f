"""Sends what batches came to to an OpenTelemetry collector, by OTLP over HTTP.

In a thread of its own with a bounded queue: a collector that is slow or gone costs traces, which
are counted, and never a batch. That it is gone is said once, and once that it is back.
"""

from __future__ import annotations

import gzip
import os
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from importlib.metadata import version
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import (
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
)

from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from infra.config.secrets import either
from infra.config.telemetry_section import TelemetrySettings
from infra.process.batch_telemetry import BatchRecord
from infra.process.log import say
from infra.process.otlp_messages import BatchCounts, resource, traces

MOST_WAITING = 2_048
"""Batches whose traces wait; of more the oldest are dropped."""
AT_ONCE = 256
"""Traces of one request."""
SECONDS = 10.0
"""Longest that one request may take."""
LAST_SECONDS = 3.0
"""The same for what is sent at the end."""

_ANSWER_BYTES = 65_536
_AGAIN = {
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}
"""Answers after which the same is sent again (OTLP 1.x, "Retryable Response Codes")."""


class _NotTaken(Exception):
    """The collector did not take it. `again`: it may take it later."""

    def __init__(self, reason: str, again: bool) -> None:
        super().__init__(reason)
        self.again = again


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """None: a redirect is an answer like any other, and the token stays here."""


class OtlpExporter:
    """Takes batches by `hear`, from any thread, and sends them by and by."""

    def __init__(self, settings: TelemetrySettings, tell: Callable[[str], None] = say) -> None:
        """Raises `Fatal` where the token's file cannot be read."""
        self._settings = settings
        self._tell = tell
        self._opener = _opener(settings)
        self._token = either(settings.otlp_token, settings.otlp_token_file, "telemetry.otlp_token")
        self._sender = resource(
            {
                "service.name": "headgate",
                "service.version": version("headgate"),
                "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
            }
            | settings.attributes
        )
        self._counts = BatchCounts(time.time_ns())
        self._waiting: deque[BatchRecord] = deque()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        self._failing = False

    def start(self) -> OtlpExporter:
        """Begin to send."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Send once more what waits, within a few seconds, and end."""
        self._stop.set()
        self._thread.join(3 * LAST_SECONDS)

    def hear(self, batch: BatchRecord) -> None:
        """Take a batch; never waits for the collector."""
        with self._lock:
            self._counts.add(batch)
            if self._settings.traces:
                self._waiting.append(batch)
                self._bound()

    def _bound(self) -> None:
        while len(self._waiting) > MOST_WAITING:
            self._counts.sums["spans.dropped", self._waiting.popleft().job, ""] += 1

    def _run(self) -> None:
        while not self._stop.wait(self._settings.interval_seconds):
            self._send_all(SECONDS)
        self._send_all(LAST_SECONDS)

    def _send_all(self, seconds: float) -> None:
        try:
            self._send_traces(seconds)
            if self._settings.metrics:
                # Under the lock: a batch that is counted meanwhile would be in one sum and not in
                # another.
                with self._lock:
                    request = self._counts.request(self._sender, time.time_ns())
                self._post("metrics", request, ExportMetricsServiceResponse(), seconds)
        except _NotTaken as error:
            if not self._failing:
                self._tell(
                    f"telemetry: {self._settings.otlp_endpoint} takes nothing: {error}; "
                    "the jobs go on, counts are sent when it is back"
                )
            self._failing = True
        else:
            if self._failing:
                self._tell(f"telemetry: {self._settings.otlp_endpoint} takes again")
            self._failing = False

    def _send_traces(self, seconds: float) -> None:
        while True:
            with self._lock:
                many = min(AT_ONCE, len(self._waiting))
                batches = [self._waiting.popleft() for _ in range(many)]
            if not batches:
                return
            try:
                answer = ExportTraceServiceResponse()
                self._post("traces", traces(self._sender, batches), answer, seconds)
            except _NotTaken as error:
                with self._lock:
                    if error.again:
                        # Back in front, in their order: the oldest are what is dropped if too many
                        # wait.
                        self._waiting.extendleft(reversed(batches))
                        self._bound()
                    else:
                        for batch in batches:
                            self._counts.sums["spans.dropped", batch.job, ""] += 1
                raise

    def _post(self, signal: str, message: Message, answer: Any, seconds: float) -> None:
        """Send one message. Raises `_NotTaken`."""
        headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        url = f"{(self._settings.otlp_endpoint or '').rstrip('/')}/v1/{signal}"
        body = gzip.compress(message.SerializeToString(), 1)
        try:
            with self._opener.open(Request(url, body, headers), timeout=seconds) as response:
                answer.ParseFromString(response.read(_ANSWER_BYTES))
        except HTTPError as error:
            error.close()
            raise _NotTaken(f"{signal}: it answers {error.code}", error.code in _AGAIN) from None
        except (URLError, OSError) as error:
            reason = getattr(error, "reason", None) or error
            raise _NotTaken(f"{signal}: {reason}", again=True) from None
        # What answers like this is no collector; whether it took anything nobody knows.
        except DecodeError:
            raise _NotTaken(f"{signal}: its answer is no OTLP", again=False) from None
        if refused := answer.partial_success.error_message:
            raise _NotTaken(f"{signal}: in part refused: {refused[:200]}", again=False)


def _opener(settings: TelemetrySettings) -> OpenerDirector:
    tls = ssl.create_default_context(cafile=settings.ca_file and str(settings.ca_file))
    # No proxy by the environment: what is inside a site would leave it by a variable.
    return build_opener(ProxyHandler({}), HTTPSHandler(context=tls), _NoRedirect)
