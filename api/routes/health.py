"""Is the process alive, and can it answer: for probes, without a token."""

from __future__ import annotations

from datetime import UTC, datetime

from fastapi import APIRouter

from api import models
from api.problems import responses
from api.routes.access import Here
from infra.duck import missing_sentence
from infra.errors import Retryable

router = APIRouter(tags=["health"])

STALE_SECONDS = 120.0
"""Jobs finish a batch every second or so and the ledger is folded every ten."""


@router.get("/healthz", summary="Is the process alive?")
async def healthz() -> models.Health:
    """Always ok while the process answers."""
    return models.Health()


@router.get("/readyz", summary="Can it answer?", responses=responses(503))
def readyz(services: Here) -> models.Ready:
    """Ready when all tables can be read and a batch was finished lately; else 503 says why."""
    missing = services.reader.missing()
    if missing:
        raise Retryable(missing_sentence(missing))
    newest = services.reader.rows(
        "SELECT max(finished_at) AS at FROM ops.ledger", needs=("ops.ledger",), seconds=5
    )[0]["at"]
    if newest is None:
        raise Retryable("no job has finished a batch yet (ops.ledger is empty)")
    age = (datetime.now(UTC) - newest).total_seconds()
    if age > STALE_SECONDS:
        raise Retryable(
            f"the newest batch in ops.ledger is {age:.0f} s old; "
            "are the jobs running (headgate up)?"
        )
    return models.Ready(newest_batch_age_seconds=round(age, 3))
