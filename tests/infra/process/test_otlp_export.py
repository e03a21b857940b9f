"""Batches told to an OpenTelemetry collector: what it gets, and that it can stop no batch."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from pydantic import ValidationError

from infra.config.telemetry_section import TelemetrySettings
from infra.kafka.client import free_port
from infra.process import otlp_export
from infra.process.batch_telemetry import BatchRecord, batch_ended, hear_batches
from infra.process.otlp_export import OtlpExporter
from tests.wait import until

BEGAN = 1_795_690_000.0
KINDS = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}


class Collector:
    """Takes OTLP over HTTP and reads it by the project's own schema."""

    def __init__(self) -> None:
        self.got: list[tuple[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.status, self.answer = 200, b""
        self.held = threading.Event()
        self.held.set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.held.wait(30)
                collector.headers.append(dict(self.headers))
                if collector.status == 200:
                    message = KINDS[self.path]()
                    message.ParseFromString(gzip.decompress(body))
                    collector.got.append((self.path, message))
                self.send_response(collector.status)
                self.send_header("Location", "http://127.0.0.1:1/")
                self.send_header("Content-Length", str(len(collector.answer)))
                self.end_headers()
                self.wfile.write(collector.answer)

            def log_message(self, *_: Any) -> None:
                """Not into the tests' output."""

        self._httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._httpd.server_port}"
        threading.Thread(target=self._httpd.serve_forever, daemon=True).start()

    def spans(self) -> list[Any]:
        return [
            span
            for path, message in self.got
            if path == "/v1/traces"
            for span in message.resource_spans[0].scope_spans[0].spans
        ]

    def metrics(self) -> dict[str, Any]:
        newest = [message for path, message in self.got if path == "/v1/metrics"][-1]
        return {
            each.name.removeprefix("job."): each
            for each in newest.resource_metrics[0].scope_metrics[0].metrics
        }

    def stop(self) -> None:
        self.held.set()
        self._httpd.shutdown()
        self._httpd.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    running = Collector()
    yield running
    running.stop()


def batch(number: int, **more: Any) -> BatchRecord:
    known = {
        "counts": {"read": 10, "dead": 1},
        "rows_written": {"silver.event": 9, "gold.finding": 2},
        "commits": (("silver.event", BEGAN + 1, BEGAN + 2), ("gold.finding", BEGAN + 2, BEGAN + 3)),
    }
    return BatchRecord("ingest", "q", number, BEGAN, BEGAN + 4, **known | more)


def exporter(url: str, told: list[str] | None = None, **more: Any) -> OtlpExporter:
    settings = TelemetrySettings(otlp_endpoint=url, **{"interval_seconds": 0.05} | more)
    return OtlpExporter(settings, (told if told is not None else []).append)


def facts(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


def test_a_batch_is_a_trace_with_a_span_a_commit_and_counts(
    collector: Collector, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text("of-the-collector\n")
    sending = exporter(
        f"{collector.url}/", otlp_token_file=token, attributes={"deployment.name": "north"}
    )
    for number in range(3):
        sending.hear(batch(number))
    sending.hear(batch(3, error="Retryable"))
    sending.start().stop()
    assert {each["Authorization"] for each in collector.headers} == {"Bearer of-the-collector"}
    spans = collector.spans()
    assert [span.name for span in spans[:3]] == [
        "batch ingest", "commit silver.event", "commit gold.finding",
    ]  # fmt: skip
    whole, first, _ = spans[:3]
    assert len({span.trace_id for span in spans}) == 4
    assert (len(whole.trace_id), len(whole.span_id)) == (16, 8)
    assert first.parent_span_id == whole.span_id
    assert (first.end_time_unix_nano - first.start_time_unix_nano) == 10**9
    told = facts(whole.attributes)
    assert (told["batch"], told["rows.read"]) == (0, 10)
    failed = spans[-3]
    assert failed.status.code == Status.STATUS_CODE_ERROR
    assert facts(failed.attributes)["error.type"] == "Retryable"

    metrics = collector.metrics()
    counts = {
        (name, facts(point.attributes).get("table")): point.as_int
        for name, metric in metrics.items()
        for point in metric.sum.data_points
    }
    assert counts == {
        ("batches", None): 3, ("failures", None): 1, ("rows.read", None): 30,
        ("rows.dead", None): 3, ("rows.written", "silver.event"): 27,
        ("rows.written", "gold.finding"): 6,
    }  # fmt: skip
    (point,) = metrics["batch.duration"].histogram.data_points
    assert (point.count, point.sum, sum(point.bucket_counts)) == (3, 12.0, 3)
    assert point.bucket_counts[list(point.explicit_bounds).index(5.0)] == 3
    sender = facts(collector.got[0][1].resource_spans[0].resource.attributes)
    assert (sender["service.name"], sender["deployment.name"]) == ("headgate", "north")


def test_a_collector_that_is_down_is_told_once_and_what_waited_comes_later(
    collector: Collector,
) -> None:
    told: list[str] = []
    collector.status = 503
    sending = exporter(collector.url, told).start()
    sending.hear(batch(1))
    until(lambda: len(collector.headers) >= 4)
    assert len(told) == 1
    assert "takes nothing: traces: it answers 503; the jobs go on" in told[0]
    collector.status = 200
    until(lambda: len(told) == 2)
    sending.stop()
    assert told[1].endswith("takes again")
    assert [facts(span.attributes)["batch"] for span in collector.spans()[:1]] == [1]
    assert len(collector.spans()) == 3


def test_nobody_at_the_address_costs_no_batch_and_what_is_too_much_is_counted(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp_export, "MOST_WAITING", 5)
    told: list[str] = []
    sending = exporter(f"http://127.0.0.1:{free_port()}", told).start()
    for number in range(20):
        sending.hear(batch(number))
    until(lambda: bool(told))
    sending.stop()
    assert len(told) == 1
    again = exporter(collector.url)
    for number in range(20):
        again.hear(batch(number))
    again.start().stop()
    assert len(collector.spans()) == 5 * 3
    (dropped,) = collector.metrics()["spans.dropped"].sum.data_points
    assert dropped.as_int == 15


def test_a_collector_that_never_answers_holds_up_neither_batch_nor_end(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp_export, "SECONDS", 0.2)
    monkeypatch.setattr(otlp_export, "LAST_SECONDS", 0.2)
    collector.held.clear()
    told: list[str] = []
    sending = exporter(collector.url, told).start()
    sending.hear(batch(1))
    until(lambda: bool(told))
    assert "timed out" in told[0]
    sending.stop()
    assert not sending._thread.is_alive()


@pytest.mark.parametrize(
    ("status", "answer", "reason"),
    [
        (400, b"", "it answers 400"),
        (302, b"", "it answers 302"),
        (200, b"<html>", "its answer is no OTLP"),
        (200, None, "in part refused: too old"),
    ],
)
def test_what_it_will_never_take_is_dropped_and_told(
    collector: Collector, status: int, answer: bytes | None, reason: str
) -> None:
    refused = ExportTraceServiceResponse()
    refused.partial_success.rejected_spans, refused.partial_success.error_message = 3, "too old"
    collector.status = status
    collector.answer = refused.SerializeToString() if answer is None else answer
    told: list[str] = []
    sending = exporter(collector.url, told, metrics=False)
    sending.hear(batch(1))
    sending.start()
    until(lambda: bool(told))
    assert reason in told[0]
    asked = len(collector.headers)
    sending.stop()
    # Nothing of it is sent again.
    assert len(collector.headers) == asked == 1


def test_batches_are_noted_only_while_somebody_hears() -> None:
    heard: list[BatchRecord] = []
    batch_ended(batch(1))
    hear_batches(heard.append)
    batch_ended(batch(2))
    hear_batches(None)
    batch_ended(batch(3))
    assert [each.batch_id for each in heard] == [2]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"otlp_endpoint": "collector:4318"}, "write https://HOST:4318"),
        ({"otlp_endpoint": "http://a:b@c.example"}, "no user and password"),
        ({"otlp_endpoint": "http://c.example:4318", "otlp_token": "x"}, "over https"),
    ],
)
def test_an_endpoint_that_is_none_or_would_tell_a_token_is_refused(
    given: dict[str, str], reason: str
) -> None:
    with pytest.raises(ValidationError, match=reason):
        TelemetrySettings(**given)
