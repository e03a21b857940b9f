"""What job `alert` reads of the join's rows, as columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from alerts.lifecycle.payloads import decode_payload
from alerts.tables import FINDING
from enrich.attribution import stream_join
from enrich.attribution.joined_row import LINE_END, attribution_of
from enrich.tables import HOLDER
from infra.config.settings import JobSettings, ScopeSettings, load
from infra.delta.schema import L, S, struct
from ingest.tables import HEARTBEAT

SAID = struct(finding_id=S, finding=S, holder=HOLDER, attr_rev=L, via=S).spark


def attribute(
    findings: DataFrame,
    segments: DataFrame,
    jobs: JobSettings,
    scopes: Sequence[ScopeSettings] = load().scopes,
) -> DataFrame:
    """`stream_join.attribute`, with `finding_id`, `holder`, `attr_rev` and `via` as columns."""
    wait = timedelta(seconds=jobs.wait_seconds)

    def said(finding: str, said: str) -> dict[str, Any]:
        text, _, routing = finding.partition(LINE_END)
        row = decode_payload(text, FINDING.schema)
        word = attribution_of(row, routing, said, wait)
        if json.loads(text)["rule_id"] == HEARTBEAT:
            word |= {"holder": None, "via": "heartbeat"}
        return {"finding_id": row["finding_id"], "finding": text, **word}

    joined = stream_join.attribute(findings, segments, jobs, scopes)
    rows = joined.select(F.udf(said, SAID)("finding", "said").alias("row"), "host_name", "feeds")
    return rows.select("row.*", "host_name", "feeds")
