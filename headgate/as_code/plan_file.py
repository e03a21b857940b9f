"""A plan that somebody looked at, so that just this is applied and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from headgate.as_code.kinds.suppressions import SUPPRESSIONS
from headgate.as_code.plan import ConfigPlan
from headgate.as_code.state import ConfigChange
from infra.config.bounded_files import bounded_bytes
from infra.errors import Fatal
from infra.storage.atomic_files import write_whole

_FORMAT = 1
_MOST_BYTES = 256 << 20


class PlanFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `plan --out` writes: every object that differed, with what it said on both sides."""

    format: int
    prune: bool
    changes: tuple[ConfigChange, ...]
    left: tuple[ConfigChange, ...]


def write_plan(file: Path, plan: ConfigPlan, prune: bool) -> None:
    """Keep a plan. Raises `Fatal` for one with problems, which nobody can apply."""
    if plan.problems:
        raise Fatal(f"{file}: not written, since the folder has problems")
    kept = PlanFile(_FORMAT, prune, plan.changes, plan.left)
    write_whole(file, msgspec.json.format(msgspec.json.encode(kept), indent=1))


def read_plan(file: Path) -> PlanFile:
    """Raises `Fatal` for what is no plan of this release."""
    try:
        kept = msgspec.json.decode(bounded_bytes(file, _MOST_BYTES), type=PlanFile)
    except msgspec.MsgspecError as error:
        raise Fatal(f"{file}: no plan of 'headgate plan --out' ({error})") from None
    if kept.format != _FORMAT:
        raise Fatal(f"{file}: a plan of format {kept.format}; this release reads {_FORMAT}")
    return kept


def require_as_planned(file: Path, kept: PlanFile, plan: ConfigPlan) -> None:
    """Raises `Fatal` that names what differs now, in force or in the folder, from the plan.

    An object that another hand changed differs from the folder now as it did not then, or no
    longer does; so the changes that are left to make say it all.
    """
    then, now = (_by_key((*p.changes, *p.left)) for p in (kept, plan))
    differing = sorted(key for key in then.keys() | now.keys() if then.get(key) != now.get(key))
    if differing:
        kind, name = differing[0]
        more = f" and {len(differing) - 1} more" if len(differing) > 1 else ""
        raise Fatal(
            f"{file}: {kind} '{name}'{more} changed since the plan, in force or in the folder; "
            "nothing was applied: plan again"
        )


def _by_key(changes: tuple[ConfigChange, ...]) -> dict[tuple[str, str], ConfigChange]:
    return {(c.kind, c.name): c for c in changes if not _is_over(c)}


def _is_over(change: ConfigChange) -> bool:
    """A suppression whose time ended is changed by no hand."""
    if change.kind != SUPPRESSIONS.name or change.after is not None or change.before is None:
        return False
    return datetime.fromisoformat(change.before["expires_at"]) <= datetime.now(UTC)
