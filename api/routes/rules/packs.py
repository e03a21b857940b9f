"""Packs of rules: versions, imports, and the way back."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path

from api.problems import responses
from api.routes.access import Here, Who, wants
from api.services.rules import pack_import, rollout
from api.wire import rollout as wire

router = APIRouter(prefix="/api/v1/rule-packs", tags=["rules"])
PackName = Annotated[str, Path(description="name of the pack", max_length=500)]
_CHANGES = [Depends(wants("engineer"))]


@router.get("", summary="List packs of rules", responses=responses(503))
def list_rule_packs(services: Here) -> wire.PackList:
    """The bundled rules and each folder of `alerts.rules`: version, origin, how many rules run or
    are tried, and files that were edited there."""
    return rollout.packs(services.settings, services.rules)


@router.post(
    "/{pack}/import/preview",
    summary="What importing a pack would change",
    responses=responses(404, 413, 422, 503),
    dependencies=_CHANGES,
)
def preview_import(
    services: Here, pack: PackName, wanted: wire.PackImportWanted
) -> wire.PackImportPlan:
    """Which rules load, are refused or can never fire, and which are added, changed and removed.
    Changes nothing. Files that were edited here are kept."""
    return pack_import.import_plan(services.settings, pack, wanted)


@router.post(
    "/{pack}/import",
    summary="Import a version of a pack",
    responses=responses(404, 413, 422, 503),
    dependencies=_CHANGES,
)
def import_pack(
    services: Here, who: Who, pack: PackName, asked: wire.PackImportAct
) -> wire.PackImported:
    """Into the folder of that name in `alerts.rules`, at once or with what is new and changed in
    shadow first. The number of changes has to be named again, so that no script changes more than
    it looked at."""
    return pack_import.import_pack(services.settings, services.rules, who.name, pack, asked)


@router.get("/{pack}/versions", summary="Versions of a pack", responses=responses(404, 422, 503))
def list_pack_versions(services: Here, pack: PackName) -> wire.PackVersionList:
    """What was imported with who, when and why, newest first."""
    return rollout.pack_versions(services.settings, pack)


@router.post(
    "/{pack}/rollback/preview",
    summary="What going back would change",
    responses=responses(404, 422, 503),
    dependencies=_CHANGES,
)
def preview_rollback(services: Here, pack: PackName, wanted: wire.RollbackWanted) -> wire.PackPlan:
    """Changes nothing. Files that were edited here are kept."""
    return rollout.rollback_plan(services.settings, pack, wanted.to)


@router.post(
    "/{pack}/rollback",
    summary="Go back to a version of a pack",
    responses=responses(404, 422, 503),
    dependencies=_CHANGES,
)
def roll_back_pack(
    services: Here, who: Who, pack: PackName, asked: wire.RollbackAct
) -> wire.PackPut:
    """Puts its files back and the rules in force. The number of changes has to be named again, so
    that no script changes more than it looked at."""
    return rollout.roll_back(services.settings, services.rules, who.name, pack, asked)
