"""What is behind an alert."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.exceptions import HTTPException

from alerts.explain.explain import explain
from api import models
from api.problems import responses
from api.routes.access import Here
from api.services.alert_snapshot import whole_alert_id

router = APIRouter(prefix="/api/v1/alerts", tags=["alerts"])


@router.get("/{alert_id}/explain", summary="Explain an alert", responses=responses(404, 422, 503))
def _explain_alert(
    services: Here,
    alert_id: Annotated[str, Path(description="alert_id, whole or shortened")],
    again: Annotated[
        bool, Query(description="run the rule on its events as they are now, too")
    ] = False,
) -> models.Explanation:
    """Its rule, the values that matched, the evidence, and the versions it ran on."""
    name = whole_alert_id(services.reader, alert_id)
    explanation = explain(services.reader.rows, services.settings, name, again=again,
                          limited=services.reader.tenants is not None)  # fmt: skip
    if explanation is None:
        raise HTTPException(404, f"no alert '{alert_id}'; list them with GET /api/v1/alerts")
    return models.Explanation(**explanation)
