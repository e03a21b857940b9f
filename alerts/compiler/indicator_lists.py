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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from alerts.compiler.sigma_to_predicate import Untranslatable
from alerts.indicators.import_formats import Bad, read_indicators
from alerts.rulepack.indicator_file_format import IndicatorEntry, open_indicators, write_indicators
from alerts.rulepack.indicator_match import FOLDER, look_in
from alerts.rulepack.indicator_normalisation import SOUGHT
from alerts.rulepack.predicate import Test
from infra.errors import Fatal, Usage
from infra.storage.state_file import JsonLayout, StateFile

INDICATOR = "indicator"
"""`headgate.type` of a rule that asks a list."""

KEPT_DAYS = 30
"""How long a file stays that no list stands for any more: packs of that age can still be run."""

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
        if (
            not name
            or len(name) > _NAME_CHARS
            or not name.replace("-", "").replace("_", "").isalnum()
        ):
            raise Usage(f"list '{name}': letters, digits, - and _, at most {_NAME_CHARS}")
        bad: list[Bad] = []
        given = list(read_indicators(path, form, kind, bad))
        # A file of the wrong kind would otherwise empty a list that is in force.
        if len(given) <= len(bad) or not given:
            first = f"; the first is line {bad[0].number}: {bad[0].reason}" if bad else ""
            raise Fatal(
                f"{path}: {len(bad)} of {len(given) + len(bad)} entries cannot be used{first}; "
                f"list '{name}' stays as it is (--format, --kind)"
            )
        return self._put(name, path, given, bad)

    def _put(self, name: str, path: Path, given: list[IndicatorEntry], bad: list[Bad]) -> _Loaded:
        list_hash = write_indicators(self.folder, given)
        kinds = open_indicators(self.folder / f"{list_hash}.arrow").table.column("kind").to_pylist()
        listing = Listing(
            list_hash, dict(sorted(Counter(kinds).items())), len(bad), path.name, datetime.now(UTC)
        )
        with self._alone():
            lists = self.lists()
            # Read under the lock, or a load beside this one would be undone.
            before = lists.get(name)
            self._keep(lists | {name: listing}, before)
        return _Loaded(name, listing, before, bad)

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
    asked = tuple(("kind", kind) for kind in SOUGHT if kind in (kinds or SOUGHT))
    return Test("observables", "listed", lists.hash, parts=(("list", name), *asked))
