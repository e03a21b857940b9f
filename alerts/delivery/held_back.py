"""Revisions whose bodies are damaged: they cannot go out, and hold back the rest of their alert.

Nothing is left out by itself: whoever consumes alerts counts on each revision, in order for an
alert. So a damaged one waits, with all later ones of its alert, until a person repairs it or lets
the topics do without it; other alerts go on (decision 0040).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from alerts.delivery.alert_message import Revision, messages_of
from alerts.delivery.publish_offset import HeldAlert, publish_offset_file, read_publish_offset
from alerts.domain.alert_body import PUT_BACK, DamagedAlert
from alerts.tables import ALERT
from infra.config.settings import Settings
from infra.errors import Fatal, Usage
from infra.process.clock import clock
from infra.process.log import say
from infra.storage.state_file import StateFile

if TYPE_CHECKING:  # the doctor looks; job `alert` needs nothing of it
    from infra.runtime.machine_checks import Finding

MOST_HELD = 500
"""Alerts: more are a damaged table. All of them are noted with each transaction."""

AT_ONCE = 500
"""Revisions of an alert that go out in one transaction when it is held back no longer."""

_WHY = 200
"""Characters of what is wrong with a body; a decoder may quote it."""

_NAMED = f"""
SELECT alert_id || ':' || revision AS name, body FROM {ALERT.name}
WHERE list_contains($names, alert_id || ':' || revision)
"""
_FIRSTS = f"""
SELECT alert_id, revision, body FROM {ALERT.name}
WHERE suppressed_by IS NULL AND list_contains($alerts, alert_id)
  AND list_contains($names, alert_id || ':' || revision)
"""
_WAITING = f"""
SELECT alert_id, revision, activity, body, sequence FROM {ALERT.name}
WHERE suppressed_by IS NULL AND alert_id = $alert AND revision BETWEEN $first AND $last
ORDER BY revision
"""
_NUMBERS = f"""
SELECT alert_id, revision FROM {ALERT.name}
WHERE suppressed_by IS NULL AND list_contains($alerts, alert_id)
"""

_Ask = Callable[..., list[dict[str, Any]]]
Held = Mapping[str, HeldAlert]
"""What is held back, by alert."""


class OutgoingRevision(NamedTuple):
    """A revision that can go out, as it does."""

    revision: Revision
    published_at: str
    body: bytes
    state: bytes


def sort_out(
    revisions: Iterable[Revision], held: Held, left: frozenset[str], version: int
) -> tuple[list[OutgoingRevision], dict[str, HeldAlert]]:
    """What of some revisions, in order for an alert, goes out, and what is held back then.

    `left`: names of those that a person left out. `version`: of gold.alert, which brought them.
    Raises `DamagedAlert` for one alert too many.
    """
    going, after = [], dict(held)
    for revision in revisions:
        hold = after.get(revision.alert_id)
        if hold is not None and revision.revision >= hold.first:
            last = max(hold.last, revision.revision)
            after[revision.alert_id] = replace(hold, last=last)
        elif revision.name in left:
            say(f"job alert: {revision.name} is left out of the topics, as a person wanted")
        else:
            now = clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
            try:
                going.append(OutgoingRevision(revision, now, *messages_of(revision.body, now)))
            except ValueError as error:
                after |= {revision.alert_id: _held_at(revision, version, str(error))}
                if len(after) > MOST_HELD:
                    raise _too_many(revision.alert_id, after[revision.alert_id]) from None
    return going, after


def _held_at(revision: Revision, version: int, why: str) -> HeldAlert:
    number = revision.revision
    return HeldAlert(number, number, version, why[:_WHY])


def looked_at(
    ask: _Ask, held: Held, left: frozenset[str], is_news: Callable[[Revision], bool]
) -> list[str]:
    """Of what is held back the alerts of which something may go out now.

    Asked for all at once, for each question goes through the table: of a damaged one that is still
    there as it was `let_go` would say no more.
    """
    waiting = {alert: hold.first for alert, hold in held.items() if hold.why}
    names = [f"{alert}:{first}" for alert, first in waiting.items()]
    torn: dict[str, bool] = {}
    for row in ask(_FIRSTS, {"alerts": list(waiting), "names": names}, needs=(ALERT.name,)):
        revision = Revision(row["alert_id"], row["revision"], "", row["body"])
        still = revision.name not in left and is_news(revision) and not _is_whole(revision)
        torn[revision.alert_id] = torn.get(revision.alert_id, True) and still
    return sorted(alert for alert in held if not torn.get(alert, False))


def _is_whole(revision: Revision) -> bool:
    try:
        messages_of(revision.body, "")
    except ValueError:
        return False
    return True


def let_go(
    ask: _Ask,
    alert_id: str,
    hold: HeldAlert,
    left: frozenset[str],
    is_news: Callable[[Revision], bool],
) -> tuple[list[OutgoingRevision], HeldAlert | None]:
    """The next of what is held back of an alert that can go out now, and what is held back then.

    From the table as it is: what a person repaired is there, and the files of the commits that
    brought them may be gone. The same hold: nothing can.
    """
    until = min(hold.last, hold.first + AT_ONCE - 1)
    wanted = {"alert": alert_id, "first": hold.first, "last": until}
    revisions = _each_once(Revision(**row) for row in ask(_WAITING, wanted, needs=(ALERT.name,)))
    unpublished = [revision for revision in revisions if is_news(revision)]
    if hold.why and hold.first not in [revision.revision for revision in revisions]:
        say(
            f"job alert: {alert_id}:{hold.first} is not in {ALERT.name} any more; the rest goes out"
        )
    going, after = sort_out(unpublished, {}, left, hold.version)
    if (again := after.get(alert_id)) is not None:
        if again.first != hold.first:
            # A row knows the version that was to bring it.
            (row,) = (revision for revision in unpublished if revision.revision == again.first)
            again = replace(again, version=max(hold.version, row.sequence or 0))
        return going, replace(again, last=hold.last)
    return going, None if until == hold.last else replace(hold, first=until + 1, why="")


def _each_once(revisions: Iterable[Revision]) -> list[Revision]:
    """Of a revision that is there twice, the one that can go out: a person put it in again."""
    chosen: dict[int, Revision] = {}
    for revision in revisions:
        if revision.revision not in chosen or _is_whole(revision):
            chosen[revision.revision] = revision
    return list(chosen.values())


def within(ask: _Ask, held: Held, later: Iterable[tuple[str, int]]) -> dict[str, HeldAlert]:
    """Of what is held back, what a table has and will not be read from its `later` revisions."""
    beyond = set(later)
    numbers: dict[str, list[int]] = {alert: [] for alert in held}
    for row in ask(_NUMBERS, {"alerts": list(held)}, needs=(ALERT.name,)):
        if (row["alert_id"], row["revision"]) not in beyond:
            numbers[row["alert_id"]].append(row["revision"])
    after = {}
    for alert, hold in held.items():
        there = [number for number in numbers[alert] if hold.first <= number <= hold.last]
        if there:
            after[alert] = replace(hold, last=max(there))
    return after


# -- what a person is told, and does ---------------------------------------------------------------


@dataclass(frozen=True)
class LeftOut:
    """`revisions`: each as ALERT_ID:REVISION."""

    revisions: list[str] = field(default_factory=list)


def left_out_file(settings: Settings) -> StateFile[LeftOut]:
    """Where they are noted, beside the place up to which alerts are published."""
    return StateFile(
        settings.checkpoint_root / "alert" / "left-out.json",
        LeftOut,
        remedy="remove it; what it let be left out is then held back again, and named",
    )


def left_out(settings: Settings) -> frozenset[str]:
    """What is left out."""
    return frozenset((left_out_file(settings).read() or LeftOut()).revisions)


def leave_out(settings: Settings, ask: _Ask, names: Sequence[str]) -> None:
    """Let these be left out as well; raises `Usage` for what is no revision, or a whole one."""
    rows = ask(_NAMED, {"names": list(names)}, needs=(ALERT.name,))
    there = {str(row["name"]): row["body"] for row in rows}
    for name in names:
        if name not in there:
            raise Usage(f"--leave-out {name}: {ALERT.name} has no such ALERT_ID:REVISION")
        with suppress(ValueError):
            messages_of(there[name], "")
            raise Usage(f"--leave-out {name}: its body is whole and goes out by itself")
    known = left_out(settings)
    left_out_file(settings).write(LeftOut(sorted({*known, *names})))


def held_sentence(held: Held) -> str:
    """What is held back, why, and what a person can do; empty: nothing is."""
    damaged = sorted(
        ((hold.version, alert_id, hold) for alert_id, hold in held.items() if hold.why),
        key=lambda each: each[:2],
    )
    if not damaged:
        return ""
    _, alert_id, hold = damaged[0]
    more = f" {len(damaged) - 1} more alerts are held back so." if len(damaged) > 1 else ""
    wait = "It waits, and with it all later revisions of this alert; other alerts go out."
    return _named(alert_id, hold, f"{wait}{more}")


def _too_many(alert_id: str, hold: HeldAlert) -> DamagedAlert:
    stopped = f"More than {MOST_HELD} alerts would be held back. Nothing behind it was sent."
    return DamagedAlert(_named(alert_id, hold, stopped))


def _named(alert_id: str, hold: HeldAlert, then: str) -> str:
    name = f"{alert_id}:{hold.first}"
    return (
        f"{ALERT.name}, version {hold.version}: alert {alert_id}, revision {hold.first}, cannot be "
        f"published: its body is damaged ({hold.why}). {then} Nothing is lost. Put its file back "
        f"from a backup: {PUT_BACK}; or let consumers do without this revision: headgate alerts "
        f"published --leave-out {name}. Its text: SELECT body FROM {ALERT.name} WHERE alert_id = "
        f"'{alert_id}' AND revision = {hold.first}"
    )


def held_back(settings: Settings) -> Held:
    """What is held back, by the file that keeps the place. Raises `Fatal` for a damaged one."""
    if not publish_offset_file(settings).exists():
        return {}
    known = read_publish_offset(settings, settings.lake_root / ALERT.path)
    return {} if known is None else known.held


def held_findings(settings: Settings) -> Iterator[Finding]:
    """One line for `headgate doctor` and `headgate status`, where something is held back."""
    from infra.runtime.machine_checks import Finding

    try:
        held = held_back(settings)
    except Fatal as error:
        yield Finding("published alerts", "their place cannot be read", str(error))
        return
    if sentence := held_sentence(held):
        count = sum(1 for hold in held.values() if hold.why)
        yield Finding("published alerts", f"{count} held back behind damaged revisions", sentence)
