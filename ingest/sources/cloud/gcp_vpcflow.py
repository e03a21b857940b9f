"""Flow logs of Google Cloud's VPCs, on a topic of their own.

https://cloud.google.com/vpc/docs/about-flow-logs-records . Entries of Cloud Logging as a sink
exports them, or their `jsonPayload` alone. `gcp_audit` reads them as well where all logs of a
project come to one topic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ingest.parsing.source import Context, Event
from ingest.sources.cloud.common import EnvelopedSource, Fields, inner, look
from ingest.sources.cloud.gcp_logging import read_entry


@dataclass(frozen=True)
class GcpVpcFlow(EnvelopedSource):
    """VPC flow logs of Google Cloud."""

    name: str = "gcp_vpcflow"
    time_keys: ClassVar[tuple[str, ...]] = ("timestamp", "receiveTimestamp", "start_time")

    def is_own(self, fields: Fields) -> bool:
        return bool(inner(fields, "jsonPayload", "connection") or inner(fields, "connection"))

    def read(self, fields: Fields, context: Context) -> Event:
        if inner(fields, "jsonPayload"):
            return read_entry(fields, context)
        # As BigQuery and some exports hold them: the flow without its entry.
        entry: Fields = {"jsonPayload": fields}
        for name in ("start_time", "end_time"):
            if type(time := look(fields, name)) is str:
                entry.setdefault("timestamp", time)
        return read_entry(entry, context)


SOURCES = (GcpVpcFlow(),)
