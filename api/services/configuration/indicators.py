"""Indicator lists over REST, by the store that `headgate indicators` loads into."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from alerts.compiler.indicator_lists import Edit, Listing, ListStore, rules_asking
from alerts.feeds.feed_state import require_no_feed
from alerts.rulebook.rule_store import recompile
from alerts.rulepack.indicator_file_format import IndicatorEntry
from alerts.rulepack.indicator_normalisation import entry
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import PackStore, RulePack
from api.observability.audit_log import audit_request
from api.services.reader import numbered_place
from api.wire import indicators as wire
from infra.config.settings import Settings
from infra.errors import Fatal, Usage

VISIBLE = "from the next batch of each job on"
Key = tuple[str, str]
"""Kind and value: what makes an entry the same as another."""


class NoSuchList(Usage):
    """There is no indicator list of that name."""


class IndicatorDesk:
    """Reads and changes the lists of a home. Each change compiles the rules anew."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def all(self) -> wire.IndicatorLists:
        """The lists in force, by name."""
        lists = self._store().lists()
        pack = self._pack() if lists else RulePack()
        return wire.IndicatorLists(
            items=[_item(name, listing, pack) for name, listing in sorted(lists.items())]
        )

    def one(self, name: str) -> wire.IndicatorListItem:
        """One list; raises `NoSuchList`."""
        return _item(name, self._listing(name), self._pack())

    def page(
        self, name: str, text: str, kind: str | None, limit: int, cursor: str | None
    ) -> wire.IndicatorPage:
        """Entries whose value or label has `text`, without case; `cursor` is the last's place."""
        wanted = text.casefold()
        fitting = [
            each
            for each in self._store().entries(self._listing(name))
            if kind in (None, each.kind)
            and (wanted in each.value.casefold() or wanted in (each.label or "").casefold())
        ]
        first = numbered_place(cursor)
        after = first + limit
        return wire.IndicatorPage(
            items=[wire.IndicatorItem(**each._asdict()) for each in fitting[first:after]],
            total=len(fitting),
            next=str(after) if after < len(fitting) else None,
        )

    def replace(
        self, who: str, name: str, given: Sequence[wire.IndicatorValue]
    ) -> wire.IndicatorListChanged:
        """Put entries in the place of all that a list has; one that is not there is made."""
        new = _entries(given)
        return self._edit(who, "replace", name, lambda _: new)

    def add(
        self, who: str, name: str, given: Sequence[wire.IndicatorValue]
    ) -> wire.IndicatorListChanged:
        """Add entries; one that is there gets the new label and end. A new list is made."""
        new = _entries(given)
        keys = {_key(each) for each in new}
        return self._edit(
            who, "add", name, lambda known: [*(e for e in known if _key(e) not in keys), *new]
        )

    def expire(
        self, who: str, name: str, values: Sequence[str], until: datetime | None
    ) -> wire.IndicatorListChanged:
        """Let entries no longer count for events from `until` (now) on."""
        end = until or datetime.now(UTC)

        def edit(known: list[IndicatorEntry]) -> list[IndicatorEntry]:
            chosen = _chosen(name, known, values)
            return [
                each._replace(valid_until=end) if _key(each) in chosen else each for each in known
            ]

        # `edit` makes a list that is not there; what is to expire must be in one.
        self._listing(name)
        return self._edit(who, "expire", name, edit)

    def take_out(self, who: str, name: str, values: Sequence[str]) -> wire.IndicatorListChanged:
        """Remove entries, also for events of the past."""

        def edit(known: list[IndicatorEntry]) -> list[IndicatorEntry]:
            chosen = _chosen(name, known, values)
            return [each for each in known if _key(each) not in chosen]

        self._listing(name)
        return self._edit(who, "take-out", name, edit)

    def remove(self, who: str, name: str) -> wire.IndicatorListRemoved:
        """Take a list away; rules that ask it are refused from then on."""
        require_no_feed(self._settings, name)
        self._listing(name)
        self._store().remove(name)
        # Noted before rules are compiled, which may be cut off while the list is gone already.
        audit_request(self._settings, "indicators.remove", "ok", who=who, target=name)
        _, refused = self._recompiled(name)
        return wire.IndicatorListRemoved(name=name, refused_rules=refused, visible=VISIBLE)

    def _edit(self, who: str, act: str, name: str, edit: Edit) -> wire.IndicatorListChanged:
        require_no_feed(self._settings, name)
        before: dict[Key, IndicatorEntry] = {}

        def noting(known: list[IndicatorEntry]) -> Iterable[IndicatorEntry]:
            before.update((_key(each), each) for each in known)
            return edit(known)

        store = self._store()
        done = store.edit(name, f"REST, {who}", noting)
        after = {_key(each): each for each in store.entries(done.listing)}
        detail = {"before": len(before), "entries": len(after), "hash": done.listing.hash}
        audit_request(self._settings, f"indicators.{act}", "ok", who=who, target=name,
                      detail=detail)  # fmt: skip
        pack, refused = self._recompiled(name)
        return wire.IndicatorListChanged(
            list=_item(name, done.listing, pack),
            before=len(before),
            changed=sum(before.get(key) != after.get(key) for key in before.keys() | after.keys()),
            refused_rules=refused,
            visible=VISIBLE,
        )

    def _recompiled(self, name: str) -> tuple[RulePack, dict[str, str]]:
        """The pack in force now, and the rules that ask a list and cannot run."""
        try:
            compiled = recompile(self._settings)
        except Fatal as error:
            # The list is changed already, and that is the answer; the pack of before stays.
            return self._pack(), {"*": str(error)}
        # A refusal says only in words which list it misses, with the name in quotes.
        refused = [each for each in compiled.refused if f"'{name}'" in each.reason]
        return compiled.pack, {each.rule: each.reason for each in refused}

    def _listing(self, name: str) -> Listing:
        listing = self._store().lists().get(name)
        if listing is None:
            raise NoSuchList(f"no indicator list '{name}'; GET /api/v1/indicators has them")
        return listing

    def _store(self) -> ListStore:
        return ListStore(store_folder(self._settings))

    def _pack(self) -> RulePack:
        store = PackStore(store_folder(self._settings))
        try:
            return store.get(store.current())
        except Fatal:  # no rules were compiled here yet
            return RulePack()


def _entries(given: Sequence[wire.IndicatorValue]) -> list[IndicatorEntry]:
    """Entries in the one spelling; raises `Usage` for the first that is none."""
    entries = []
    for place, each in enumerate(given):
        try:
            kind, value = entry(each.value, each.kind or "auto")
        except ValueError as error:
            raise Usage(
                f"entries.{place}: '{each.value[:80]}': {error}; nothing was changed"
            ) from None
        entries.append(IndicatorEntry(kind, value, each.label or None, each.valid_until))
    return entries


def _chosen(name: str, known: Iterable[IndicatorEntry], values: Sequence[str]) -> set[Key]:
    """The entries that values mean, each as it is listed or as people write it."""
    listed: dict[str, list[Key]] = {}
    for each in known:
        listed.setdefault(each.value, []).append(_key(each))
    chosen: set[Key] = set()
    for value in values:
        keys = listed.get(value) or listed.get(_spelling(value))
        if not keys:
            raise Usage(f"'{value[:80]}' is not in list '{name}'; nothing was changed")
        chosen.update(keys)
    return chosen


def _spelling(value: str) -> str:
    try:
        return entry(value)[1]
    except ValueError:
        return value


def _key(each: IndicatorEntry) -> Key:
    return each.kind, each.value


def _item(name: str, listing: Listing, pack: RulePack) -> wire.IndicatorListItem:
    return wire.IndicatorListItem(
        name=name,
        entries=listing.entries,
        kinds=listing.kinds,
        refused=listing.refused,
        source=listing.file,
        loaded_at=listing.loaded_at,
        rules=rules_asking(listing, pack),
        hash=listing.hash,
    )
