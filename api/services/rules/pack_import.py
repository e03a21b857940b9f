"""A version of a pack over REST: what `headgate rules import --into` does with a folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from alerts.rollout.pack_plan import PackPlan
from alerts.rollout.pack_update import plan_version, put_version, require_new_name
from alerts.rollout.pack_versions import PackVersion, PackVersions, new_pack_version
from alerts.rollout.shadow import ShadowWish
from alerts.rulebook.public_rules import NOTICES, Report, files_to_take, look_through
from alerts.rulebook.rule_packs import BUNDLED_PACK, every_pack
from api.observability.audit_log import audit_request
from api.services.rules.desk import RuleDesk
from api.services.rules.rollout import criteria_of, plan_changes, require_count, told_rules
from api.services.visibility import in_force_when
from api.wire import rollout as wire
from infra.config.settings import Settings
from infra.errors import NoSuch, Usage

_YAML = (".yml", ".yaml")


def import_plan(
    settings: Settings, pack: str, wanted: wire.PackImportWanted
) -> wire.PackImportPlan:
    """What an import would change; raises `Usage` for a pack or a file that cannot be."""
    with _looked_at(settings, pack, wanted) as (report, plan):
        taken = _version(plan, wanted, "", "", "")
        require_new_name(PackVersions(settings).of(plan.folder), taken)
        return wire.PackImportPlan(
            pack=str(plan.folder),
            version=taken.version,
            rules=told_rules(plan),
            changes=plan_changes(plan),
            same=plan.same,
            loaded=len(report.loaded),
            refused=[
                wire.PackRefusals(
                    kind=group.kind,
                    rules=group.count,
                    examples=[f"{r.rule}: {r.reason}; {r.remedy}" for r in group.examples],
                )
                for group in report.groups
            ],
            no_source=len(report.never),
            cannot_fire=[
                wire.PackDead(id=dead.rule.id, title=dead.rule.title, reason=dead.reason)
                for dead in report.dead
            ],
            left_out=dict(report.left_out),
        )


def import_pack(
    settings: Settings, desk: RuleDesk, who: str, pack: str, asked: wire.PackImportAct
) -> wire.PackImported:
    """Import it; raises `Usage` where that changes another number of rules than was looked at."""
    reason = asked.reason.strip()
    shadow_wish = None if asked.shadow_days is None else ShadowWish(who, reason, asked.shadow_days)
    with desk.changing(), _looked_at(settings, pack, asked) as (_, plan):
        require_count(asked.changes, plan_changes(plan))
        taken = _version(plan, asked, asked.source.strip() or "REST", who, reason)
        put = put_version(settings, plan, taken, shadow_wish)
    in_force = put.pack.hash if put.pack else ""
    detail = {"version": taken.version, "source": taken.source, "reason": reason,
              "changes": asked.changes, "shadowed": put.shadowed, "pack": in_force}  # fmt: skip
    audit_request(settings, "pack.import", "ok", who=who, target=pack, detail=detail)
    return wire.PackImported(
        version=taken.version,
        changes=asked.changes,
        pack=in_force,
        visible=in_force_when(settings),
        shadowed=put.shadowed,
        at_once=put.at_once,
    )


@contextmanager
def _looked_at(
    settings: Settings, pack: str, wanted: wire.PackImportWanted
) -> Iterator[tuple[Report, PackPlan]]:
    """The files looked through in a folder of their own, and what they would change."""
    folders = every_pack(settings)
    folder = folders.get(pack)
    if folder is None:
        there = ", ".join(folders) or "none"
        # The bundled pack is there, and nothing is imported into it.
        refused = Usage if pack == BUNDLED_PACK else NoSuch
        raise refused(f"no pack '{pack}'; there are {there}: name its folder in alerts.rules first")
    with TemporaryDirectory(prefix="headgate-pack-") as name:
        root = Path(name)
        for path, text in _named(wanted.files):
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, "utf-8", newline="")
        report = look_through(root, settings.sources, criteria_of(wanted))
        if not report.loaded:
            raise Usage(
                f"not one rule of {len(wanted.files)} files is wanted and loads: "
                f"{sum(group.count for group in report.groups)} are refused, "
                f"{sum(report.left_out.values())} left out"
            )
        files = files_to_take(report)
        yield report, plan_version(settings, folder, files, report.compiled, root)


def _named(files: Iterable[wire.PackFile]) -> Iterator[tuple[str, str]]:
    """Path and text of each file; raises `Usage` for one that is no rule and no licence."""
    seen: set[str] = set()
    for file in files:
        path = PurePosixPath(file.path)
        # What stands in the request becomes a name on our disk.
        within = not path.is_absolute() and ".." not in path.parts and "\\" not in file.path
        if not within or not file.path.isprintable() or str(path) != file.path:
            raise Usage(f"file '{file.path}': give a path below the pack's folder, with / alone")
        notice = len(path.parts) == 1 and path.name.upper().startswith(NOTICES)
        if path.suffix not in _YAML and not notice:
            # A rule in Python is code, which only who has the machine may bring.
            raise Usage(f"file '{file.path}': a pack has .yml files and licences alone")
        if file.path in seen:
            raise Usage(f"file '{file.path}' comes twice")
        seen.add(file.path)
        yield file.path, file.text


def _version(
    plan: PackPlan, wanted: wire.PackImportWanted, source: str, who: str, reason: str
) -> PackVersion:
    given = {"tag": wanted.tags, "level": wanted.levels, "status": wanted.statuses,
             "product": wanted.products}  # fmt: skip
    only = " ".join(f"--{name} {','.join(values)}" for name, values in given.items() if values)
    return new_pack_version(plan.files, wanted.version, source, who, reason, "imported", only)
