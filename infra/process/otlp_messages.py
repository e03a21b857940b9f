"""Batches as OTLP messages: a trace of each with a span a commit, and counts over all.

Source of the form: OpenTelemetry Protocol 1.x (opentelemetry-proto). Counts are cumulative since
the process began, so that one sending that is lost loses nothing.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from infra.process.batch_telemetry import BatchRecord

_SCOPE = InstrumentationScope(name="headgate")
_BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the durations' buckets, seconds."""

_NAMES = {
    "batches": ("{batch}", "Batches that are in."),
    "failures": ("{batch}", "Attempts at a batch that failed."),
    "rows.read": ("{row}", "Rows that entered batches."),
    "rows.dead": ("{row}", "Rows written as dead letters."),
    "rows.written": ("{row}", "Rows written, by table."),
    "spans.dropped": ("{span}", "Batches whose trace was not sent, as too many waited."),
}
_Key = tuple[str, str, str]
"""Metric, job, table (both may be empty)."""


def resource(attributes: Mapping[str, str]) -> Resource:
    """Who sends."""
    return Resource(attributes=_attributes(attributes))


@dataclass
class BatchCounts:
    """What all batches of this process came to. `since`: nanoseconds since 1970."""

    since: int
    sums: Counter[_Key] = field(default_factory=Counter)
    durations: dict[str, list[float]] = field(default_factory=dict)
    """By job: batches in each bucket, then the sum of their seconds."""

    def add(self, batch: BatchRecord) -> None:
        """Count one batch."""
        if batch.error is not None:
            self.sums["failures", batch.job, ""] += 1
            return
        self.sums["batches", batch.job, ""] += 1
        self.sums["rows.read", batch.job, ""] += batch.counts.get("read", 0)
        self.sums["rows.dead", batch.job, ""] += batch.counts.get("dead", 0)
        for table, rows in batch.rows_written.items():
            self.sums["rows.written", batch.job, table] += rows
        buckets = self.durations.setdefault(batch.job, [0.0] * (len(_BOUNDS) + 2))
        seconds = batch.ended - batch.began
        # A bound belongs to the bucket below it, as OTLP has it (explicit_bounds).
        buckets[bisect_left(_BOUNDS, seconds)] += 1
        buckets[-1] += seconds

    def request(self, sender: Resource, now: int) -> ExportMetricsServiceRequest:
        """The counts as they stand; `now`: nanoseconds since 1970."""
        metrics = [self._sum(name, now) for name in _NAMES]
        metrics.append(self._histogram(now))
        # A metric without points is left out: an empty one has no bytes.
        filled = [metric for metric in metrics if metric.ByteSize()]
        scope = ScopeMetrics(scope=_SCOPE, metrics=filled)
        return ExportMetricsServiceRequest(
            resource_metrics=[ResourceMetrics(resource=sender, scope_metrics=[scope])]
        )

    def _sum(self, name: str, now: int) -> Metric:
        unit, description = _NAMES[name]
        points = [
            NumberDataPoint(
                attributes=_of(job, table), start_time_unix_nano=self.since, time_unix_nano=now,
                as_int=count,
            )
            for (metric, job, table), count in sorted(self.sums.items())
            if metric == name
        ]  # fmt: skip
        if not points:
            return Metric()
        return Metric(
            name=f"job.{name}", unit=unit, description=description,
            sum=Sum(
                data_points=points, is_monotonic=True,
                aggregation_temporality=AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE,
            ),
        )  # fmt: skip

    def _histogram(self, now: int) -> Metric:
        points = [
            HistogramDataPoint(
                attributes=_of(job, ""), start_time_unix_nano=self.since, time_unix_nano=now,
                count=int(sum(buckets)), sum=seconds, explicit_bounds=_BOUNDS,
                bucket_counts=[int(count) for count in buckets],
            )
            for job, (*buckets, seconds) in sorted(self.durations.items())
        ]  # fmt: skip
        if not points:
            return Metric()
        return Metric(
            name="job.batch.duration", unit="s",
            description="From the beginning of a batch until its tables are committed.",
            histogram=Histogram(
                data_points=points,
                aggregation_temporality=AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE,
            ),
        )  # fmt: skip


def traces(sender: Resource, batches: Iterable[BatchRecord]) -> ExportTraceServiceRequest:
    """A trace of each batch."""
    spans = [span for batch in batches for span in _spans(batch)]
    scope = ScopeSpans(scope=_SCOPE, spans=spans)
    return ExportTraceServiceRequest(
        resource_spans=[ResourceSpans(resource=sender, scope_spans=[scope])]
    )


def _spans(batch: BatchRecord) -> Sequence[Span]:
    # Of what a batch is, so that a sending that is repeated repeats no trace.
    named = f"{batch.job}|{batch.query_id}|{batch.batch_id}|{batch.began}"
    trace = hashlib.sha256(named.encode()).digest()[:16]
    root = _span_id(trace, "")
    facts: dict[str, str | int | bool | None] = {
        "job": batch.job,
        "batch": batch.batch_id,
        "rows.read": batch.counts.get("read"),
        "rows.dead": batch.counts.get("dead"),
        "rows.late": batch.counts.get("late"),
        "replayed": batch.replayed,
        "error.type": batch.error,
    }
    failed = Status(code=Status.STATUS_CODE_ERROR) if batch.error else None
    whole = Span(
        trace_id=trace, span_id=root, name=f"batch {batch.job}", kind=Span.SPAN_KIND_CONSUMER,
        start_time_unix_nano=_nanos(batch.began), end_time_unix_nano=_nanos(batch.ended),
        attributes=_attributes(facts), status=failed,
    )  # fmt: skip
    commits = [
        Span(
            trace_id=trace, span_id=_span_id(trace, table), parent_span_id=root,
            name=f"commit {table}", kind=Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=_nanos(began), end_time_unix_nano=_nanos(ended),
            attributes=_attributes(
                {"table": table, "rows.written": batch.rows_written.get(table)}
            ),
        )
        for table, began, ended in batch.commits
    ]  # fmt: skip
    return [whole, *commits]


def _span_id(trace: bytes, name: str) -> bytes:
    return hashlib.sha256(trace + name.encode()).digest()[:8]


def _nanos(seconds: float) -> int:
    return int(seconds * 1e9)


def _of(job: str, table: str) -> list[KeyValue]:
    named = {"job": job or None, "table": table or None}
    return _attributes(named)


def _attributes(facts: Mapping[str, str | int | bool | None]) -> list[KeyValue]:
    return [KeyValue(key=name, value=_value(v)) for name, v in facts.items() if v is not None]


def _value(value: str | int | bool) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    return AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value)
