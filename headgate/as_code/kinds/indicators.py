"""Indicator lists: a CSV file each. A list is known by the hash of its entries."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path, PurePosixPath
from typing import Any

from alerts.compiler.indicator_lists import Listing, ListStore
from alerts.rulepack.indicator_file_format import open_indicators
from alerts.rulepack.locations import FOLDER, store_folder
from headgate.as_code.kinds.kind import ConfigKind, FolderReading, Texts, files_in
from headgate.as_code.state import ConfigChange, Objects, ObjectValues
from infra.config.settings import Settings
from infra.errors import Fatal, HeadgateError

_KIND = "indicators"
_BELOW = "indicators/"
_owns = files_in(_BELOW, ".csv")
_COLUMNS = ("kind", "value", "label", "valid_until")


def lists_as_planned(reading: FolderReading) -> Path:
    """A store in the reading's scratch folder with the lists as they would be; rules compile
    beside it."""
    return reading.scratch / "store"


def _in_force(settings: Settings) -> Objects:
    # What feeds keep changes by the hour, and is nobody's to review.
    kept = _kept_by_feeds(settings)
    return {
        name: _values(listing)
        for name, listing in ListStore(store_folder(settings)).lists().items()
        if name not in kept
    }


def _kept_by_feeds(settings: Settings) -> set[str]:
    return {feed.list_name for feed in settings.intelligence.feeds}


def _values(listing: Listing) -> ObjectValues:
    # Not the entries themselves: a list may have millions, and git shows which line differs.
    return {"hash": listing.hash, "entries": listing.kinds}


def _to_texts(settings: Settings, objects: Objects) -> Texts:
    folder = store_folder(settings) / FOLDER
    return {
        f"{_BELOW}{name}.csv": _csv(folder / f"{values['hash']}.arrow")
        for name, values in objects.items()
    }


def _csv(path: Path) -> str:
    table = open_indicators(path).table.select(list(_COLUMNS))
    # By value, where the file in force is sorted by hash: a new entry is then one line of a diff.
    rows = sorted(table.to_pylist(), key=lambda row: (row["kind"], row["value"]))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows([_cells(row) for row in rows])
    return text.getvalue()


def _cells(row: dict[str, Any]) -> list[str]:
    until = row["valid_until"]
    ends = "" if until is None else until.isoformat().replace("+00:00", "Z")
    return [row["kind"], row["value"], row["label"] or "", ends]


def _from_texts(reading: FolderReading) -> Objects:
    store = ListStore(lists_as_planned(reading))
    store.folder.mkdir(parents=True)
    names = store_folder(reading.settings) / FOLDER / "indicators.json"
    if names.exists():
        shutil.copyfile(names, store.folder / names.name)
    paths = {PurePosixPath(path).stem: path for path in filter(_owns, reading.texts)}
    kept = _kept_by_feeds(reading.settings)
    objects: Objects = {}
    for name, path in sorted(paths.items()):
        if name in kept:
            reading.refuse(_KIND, name, f"{path}: a feed of the settings keeps this list")
            continue
        file = reading.scratch / f"{name}.csv"
        file.write_bytes(reading.texts[path].encode("utf-8"))
        try:
            done = store.load(name, file)
        except HeadgateError as error:
            reading.refuse(_KIND, name, str(error).replace(str(file), path))
            continue
        for bad in done.bad:
            # `indicators load` takes the others; what is reviewed must not be half of it.
            reading.refuse(_KIND, name, f"{path}:{bad.number}: {bad.text}: {bad.reason}")
        objects[name] = _values(done.listing)
    if reading.prune:
        for name in store.lists().keys() - paths.keys() - kept:
            store.remove(name)
    return objects


def _stage(reading: FolderReading, change: ConfigChange, folder: Path) -> None:
    if change.after is not None:
        shutil.copyfile(reading.scratch / f"{change.name}.csv", folder / f"{change.name}.csv")


def _put(settings: Settings, change: ConfigChange, staged: str) -> None:
    store = ListStore(store_folder(settings))
    if change.after is None:
        if change.name in store.lists():
            store.remove(change.name)
        return
    if _in_force(settings).get(change.name) == change.after:
        return
    done = store.load(change.name, Path(staged) / f"{change.name}.csv")
    if done.listing.hash != change.after["hash"]:
        raise Fatal(f"list '{change.name}' is not what was planned; run 'headgate plan' again")


INDICATOR_LISTS = ConfigKind(_KIND, _owns, _in_force, _to_texts, _from_texts, _put, stage=_stage)
