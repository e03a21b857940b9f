"""Job `sessions`: who holds which address, from DHCP events, as a stream."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from enrich.dhcp.state_layout import INPUT, claim
from enrich.dhcp.stateful_operator import VERSIONS, with_store
from enrich.dhcp.tracker import track
from enrich.tables import DHCP_SEGMENT
from infra.streaming.job import Batch, Job
from infra.streaming.lake import Lake
from ingest.tables import EVENT, HEARTBEAT

_DHCP_ACTIVITY = 4004


def sessions(lake: Lake, *, once: bool = False) -> Job:
    """silver.event -> silver.dhcp_segment, through state by bucket of addresses.

    Raises `Fatal` when the checkpoint's state has another shape than the settings ask for.
    """
    claim(lake.settings)
    version = VERSIONS[lake.settings.jobs.session_state]
    # A query takes its state store from its session, so this job has a session of its own.
    lake = Lake(with_store(lake.spark, version), lake.settings)
    events = lake.stream(EVENT, job="sessions").where(
        (F.col("source") == HEARTBEAT)
        | (
            (F.col("class_uid") == _DHCP_ACTIVITY)
            & F.col("dead_letter_reason").isNull()
            & F.col("mode").isin("live", "replay")
        )
    )

    def batch(segments: DataFrame, run: Batch) -> None:
        late = F.count_if(F.col("kind") == "too_late")
        # The last line is that of the one source. In the commit it outlives the checkpoint, which
        # can be made anew from it (`enrich.dhcp.input_offset`).
        run.noted[INPUT] = run.offsets.splitlines()[-1]
        lake.append(segments, DHCP_SEGMENT, run, counts={"late": late})

    trigger = None if once else lake.settings.jobs.sessions_trigger_seconds
    segments = track(events, lake.settings.jobs)
    return lake.each_batch("sessions", segments, batch, trigger_seconds=trigger)
