"""Is the process alive, and can it answer: for probes, without a token."""

from __future__ import annotations

import re
import time

import anyio
import anyio.to_thread
from fastapi import APIRouter

from api import models
from api.problems import responses
from api.routes.access import Anybody
from infra.errors import Retryable
from infra.runtime import job_status
from infra.runtime.job_registry import wanted_jobs

ROLE = None
"""Probes have no token."""

_PATH = re.compile(r"(?:\w+:/+|/)[^\s/'\":;,()]+(?:/[^\s'\":;,()]*)?")
"""A path or an address with one: whoever asks needs no token, and learns nothing of the machine."""

router = APIRouter(tags=["health"])


_A_TURN = 3.0
"""Seconds in which one of the threads that answer gets free, unless all of them hang."""


@router.get("/healthz", summary="Is the process alive?", responses=responses(503))
async def healthz(services: Anybody) -> models.Health:
    """Ok while the process answers; 503 when what answers questions in it hangs."""
    if blocked := services.statements.blocked:
        raise Retryable(
            f"{len(blocked)} statement workers have not come back for {max(blocked):.0f} s"
        )
    with anyio.move_on_after(_A_TURN) as turn:
        # Any work will do: only whether a thread gets free is asked.
        await anyio.to_thread.run_sync(time.monotonic)
    if turn.cancelled_caught:
        raise Retryable(f"no thread that answers was free for {_A_TURN:g} s")
    return models.Health()


@router.get("/readyz", summary="Can it answer, and do the jobs work?", responses=responses(503))
def readyz(services: Anybody) -> models.Ready:
    """Ready when all tables can be read and every job made progress within its target.

    Else 503 names each table or job and what is wrong with it, also a lake that is another one
    than when the API began.
    """
    try:
        services.reader.require_ready()
    except Retryable as error:
        raise Retryable(_PATH.sub("the lake", str(error))) from None
    now = time.time()
    settings = services.settings
    verdicts = job_status.judge_jobs(
        settings, wanted_jobs(settings), job_status.read_status(settings), now
    )
    if late := [verdict for verdict in verdicts if verdict.missed]:
        reasons = "; ".join(f"job {verdict.job}: {verdict.missed}" for verdict in late)
        raise Retryable(_PATH.sub("(a path)", reasons))
    status = [verdict.status for verdict in verdicts if verdict.status is not None]
    batches = [verdict.batch_at for verdict in status if verdict.batch_at is not None]
    since_batch = round(now - max(batches), 3) if batches else None
    return models.Ready(
        # Jobs that have nothing to do make progress without a batch.
        since_batch_seconds=since_batch,
        newest_batch_age_seconds=since_batch,
        jobs={verdict.job: round(now - (verdict.progressed_at or now), 3) for verdict in status},
    )
