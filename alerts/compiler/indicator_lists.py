"""The lists of a lake: which file each name stands for, and how a new one takes its place.

A list is a file under its hash, `indicators.json` says which is in force. Rules name a list, the
pack that is made of them its hash: so a list that is loaded is live with the next micro-batch,
each batch knows what it was matched against, and a retry matches against the same.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from alerts.compiler.sigma_to_predicate import Untranslatable
from alerts.rulepack.indicator_normalisation import SOUGHT
from alerts.rulepack.locations import FOLDER, look_in
from alerts.rulepack.predicate import Test, tests_of
from alerts.rulepack.rule_pack import RulePack
from infra.errors import Fatal, Usage
from infra.storage.state_file import JsonLayout, StateFile

if TYPE_CHECKING:  # rules are compiled without Arrow and numpy; only lists themselves need them
    from alerts.indicators.import_formats import Bad
    from alerts.rulepack.indicator_file_format import IndicatorEntry

INDICATOR = "indicator"
"""`headgate.type` of a rule that asks a list."""

KEPT_DAYS = 30
"""How long a file stays that no list stands for any more: packs of that age can still be run."""

FEED = "feed "
"""Stands before the name of a feed where a list says which file it came from."""

_NAME_CHARS = 64


class Listing(msgspec.Struct, frozen=True):
    """A list in force: its file, what it holds by kind, and where and when (UTC) it came from."""

    hash: str
    kinds: dict[str, int]
    refused: int
    file: str
    loaded_at: datetime

    @property
    def entries(self) -> int:
        """How many entries it has, each value once."""
        return sum(self.kinds.values())


@dataclass(frozen=True)
class _Loaded:
    """What a load came to; `before` is the list that was in force until now."""

    name: str
    listing: Listing
    before: Listing | None
    bad: list[Bad]


Edit = Callable[[list["IndicatorEntry"]], Iterable["IndicatorEntry"]]
"""Makes a list's entries of those it has."""


class ListStore:
    """The lists beside the packs of a store."""

    def __init__(self, store: Path) -> None:
        self.folder = store / FOLDER
        self._names = StateFile(
            self.folder / "indicators.json",
            dict[str, Listing],
            "put it back from a backup, or remove it and load the lists again",
            layout=JsonLayout.COMPACT_SORTED,
        )
        look_in(store)

    def lists(self) -> dict[str, Listing]:
        """The lists in force, by name."""
        return self._names.read() or {}

    def load(self, name: str, path: Path, form: str | None = None, kind: str = "auto") -> _Loaded:
        """Compile a file and put it in the place of the list of that name.

        Raises `Fatal`, and leaves the list in force alone, where nothing or less than half of
        the file can be used.
        """
        from alerts.indicators.import_formats import read_indicators

        _require_name(name)
        bad: list[Bad] = []
        given = list(read_indicators(path, form, kind, bad))
        # A file of the wrong kind would otherwise empty a list that is in force.
        if len(given) <= len(bad) or not given:
            first = f"; the first is line {bad[0].number}: {bad[0].reason}" if bad else ""
            raise Fatal(
                f"{path}: {len(bad)} of {len(given) + len(bad)} entries cannot be used{first}; "
                f"list '{name}' stays as it is (--format, --kind)"
            )
        return self._put(name, path.name, given, len(bad), bad)

    def put_feed(
        self, name: str, feed: str, entries: list[IndicatorEntry], refused: int
    ) -> _Loaded:
        """Put what a feed says now in the place of the list of that name; it may be empty."""
        _require_name(name)
        return self._put(name, f"{FEED}{feed}", entries, refused, [])

    def _put(
        self, name: str, origin: str, given: list[IndicatorEntry], refused: int, bad: list[Bad]
    ) -> _Loaded:
        # Outside of the lock: a large list takes seconds, and under its hash nobody asks it yet.
        listing = self._written(origin, given, refused)
        with self._alone():
            lists = self.lists()
            # Read under the lock, or a load beside this one would be undone.
            before = lists.get(name)
            self._keep(lists | {name: listing}, before)
        return _Loaded(name, listing, before, bad)

    def edit(self, name: str, source: str, edit: Edit) -> _Loaded:
        """Put what `edit` makes of the entries in force in their place; a list that is not there
        yet has none. `source` is kept where the name of a file is.

        Nobody else loads meanwhile, so no entry of theirs is lost.
        """
        from alerts.indicators.import_formats import MAX_ENTRIES

        _require_name(name)
        with self._alone():
            lists = self.lists()
            before = lists.get(name)
            entries_before = [] if before is None else self.entries(before)
            entries = list(edit(entries_before))
            if len(entries) > MAX_ENTRIES:
                raise Usage(f"list '{name}': more than {MAX_ENTRIES} entries; it stays as it is")
            listing = self._written(source, entries, 0)
            self._keep(lists | {name: listing}, before)
        return _Loaded(name, listing, before, [])

    def entries(self, listing: Listing) -> list[IndicatorEntry]:
        """What a list holds, by kind and value."""
        from alerts.rulepack.indicator_file_format import IndicatorEntry, open_indicators

        table = open_indicators(self.folder / f"{listing.hash}.arrow").table
        rows = table.drop_columns(["hash"]).to_pylist()
        return sorted((IndicatorEntry(**row) for row in rows), key=lambda entry: entry[:2])

    def _written(self, source: str, entries: list[IndicatorEntry], refused: int) -> Listing:
        from alerts.rulepack.indicator_file_format import open_indicators, write_indicators

        list_hash = write_indicators(self.folder, entries)
        kinds = open_indicators(self.folder / f"{list_hash}.arrow").table.column("kind").to_pylist()
        counts = dict(sorted(Counter(kinds).items()))
        return Listing(list_hash, counts, refused, source, datetime.now(UTC))

    def remove(self, name: str) -> None:
        """Let a list no longer be; its file stays as long as packs may need it."""
        with self._alone():
            lists = self.lists()
            if name not in lists:
                raise Usage(f"no list '{name}'; 'headgate indicators list' shows them")
            before = lists.pop(name)
            self._keep(lists, before)

    def _keep(self, lists: dict[str, Listing], before: Listing | None) -> None:
        """Write the names; the age of a file that leaves counts from now."""
        self._names.write(lists)
        named = {as_list.hash for as_list in lists.values()}
        if before is not None and (old := self.folder / f"{before.hash}.arrow").exists():
            # Packs of the last weeks may still name it; its days count from when it left.
            os.utime(old)
        for file in self.folder.glob("*.arrow"):
            aged = time.time() - file.stat().st_mtime > KEPT_DAYS * 86_400
            if file.stem not in named and aged:
                file.unlink(missing_ok=True)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One writer of the names at a time; it waits for the other."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _require_name(name: str) -> None:
    plain = name.replace("-", "").replace("_", "")
    if not name or len(name) > _NAME_CHARS or not plain.isalnum():
        raise Usage(f"list '{name}': letters, digits, - and _, at most {_NAME_CHARS}")


def listed_test(store: Path | None, name: str, kinds: tuple[str, ...]) -> Test:
    """The test that a rule over a list makes; raises `Untranslatable` where it cannot run."""
    if not name:
        raise Untranslatable(f"type {INDICATOR} without a list", "add `list: NAME`")
    wrong = sorted(set(kinds) - set(SOUGHT))
    if wrong:
        raise Untranslatable(f"headgate.observables: {wrong}", f"of {', '.join(SOUGHT)}")
    lists = ListStore(store).lists().get(name) if store is not None else None
    if lists is None:
        raise Untranslatable(
            f"there is no list '{name}'", f"load it: headgate indicators load {name} FILE"
        )
    # In one order, so that the same rule gives the same pack.
    kind_parts = tuple(("kind", kind) for kind in SOUGHT if kind in (kinds or SOUGHT))
    return Test("observables", "listed", lists.hash, parts=(("list", name), *kind_parts))


def rules_asking(listing: Listing, pack: RulePack) -> list[str]:
    """Names of the rules of a pack that ask a list, in the pack's order."""
    return [
        rule.name or rule.id
        for rule in pack.rules
        if any(
            test.op == "listed" and test.value == listing.hash for test in tests_of(rule.predicate)
        )
    ]
