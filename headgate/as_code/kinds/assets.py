"""Assets as inventories list them: a file of JSON lines for each inventory, a line an asset.

An inventory that `up` brings to a file of the settings (`assets.file`) is left out: that file says
what it holds, and would undo what is applied here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from enrich.assets.inventory_file import read_inventory
from enrich.assets.loader import Write, entries_in_force, load_inventory
from enrich.assets.registers import ASSETS
from enrich.cli import append
from headgate.as_code.kinds.kind import ConfigKind, FolderReading, Texts, files_in
from headgate.as_code.state import ConfigChange, Objects, ObjectValues
from infra.config.settings import Settings
from infra.errors import Fatal, Usage

_KIND = "asset"
_BELOW = "assets/"
_owns = files_in(_BELOW, ".ndjson")


def _in_force(settings: Settings) -> Objects:
    kept_elsewhere = "default" if settings.assets.file else None
    return {
        f"{inventory}/{name}": _plain(values)
        for inventory, entries in entries_in_force(settings, ASSETS).items()
        if inventory != kept_elsewhere
        for name, values in entries.items()
    }


def _plain(values: dict[str, Any]) -> ObjectValues:
    """What is said of an asset, with further columns of the inventory beside ours."""
    more = json.loads(values["more"]) if values["more"] else {}
    ours = {key: value for key, value in values.items() if value is not None and key != "more"}
    return {**more, **ours}


def _to_texts(settings: Settings, objects: Objects) -> Texts:
    texts: Texts = {}
    for name, values in sorted(objects.items()):
        inventory, _, asset_id = name.partition("/")
        if PurePosixPath(inventory).name != inventory or inventory.startswith("."):
            raise Fatal(f"inventory '{inventory}': no name of a file; import it under another name")
        line = json.dumps({ASSETS.identity: asset_id} | values, ensure_ascii=False, sort_keys=True)
        path = f"{_BELOW}{inventory}.ndjson"
        texts[path] = texts.get(path, "") + line + "\n"
    return texts


def _from_texts(reading: FolderReading) -> Objects:
    objects: Objects = {}
    for path in filter(_owns, reading.texts):
        inventory = PurePosixPath(path).stem
        if inventory == "default" and reading.settings.assets.file:
            reading.refuse(_KIND, inventory, "assets.file of the settings says what it lists")
            continue
        file = reading.scratch / f"assets-{inventory}.ndjson"
        file.write_bytes(reading.texts[path].encode("utf-8"))
        if not reading.texts[path].strip():
            continue
        try:
            listing = read_inventory(str(file), ASSETS)
        except Usage as error:
            reading.refuse(_KIND, inventory, str(error).replace(str(file), path))
            continue
        for refused in listing.refused:
            reading.refuse(_KIND, inventory, f"{path}:{refused.line}: {refused.reason}")
        for _, entry in listing.entries:
            name = f"{inventory}/{entry.id}"
            if entry.valid_from is not None:
                reading.refuse(_KIND, name, "valid_from: 'headgate assets import' takes the past")
            objects[name] = _plain(entry.values)
    return objects


def put_assets(
    settings: Settings, changes: Sequence[ConfigChange], staged: str, write: Write
) -> None:
    """Bring each inventory that changes to what it lists then, in one commit each."""
    objects = _in_force(settings)
    for change in changes:
        objects.pop(change.name, None)
        if change.after is not None:
            objects[change.name] = change.after
    texts = _to_texts(settings, objects)
    for inventory in sorted({change.name.partition("/")[0] for change in changes}):
        file = Path(staged) / f"{inventory}.ndjson"
        # A list of nothing is still a list: it needs the headings that say what it lists.
        empty = ",".join((ASSETS.identity, *ASSETS.keys)) + "\n"
        file.write_text(texts.get(f"{_BELOW}{inventory}.ndjson", empty), "utf-8")
        load_inventory(
            settings, ASSETS, str(file), write, inventory=inventory, accept_removals=True
        )


def _put_all(settings: Settings, changes: Sequence[ConfigChange], staged: str) -> None:
    # Only where something differs: it starts Spark for the commit.
    put_assets(
        settings, changes, staged, lambda table, rows, note: append(settings, table, rows, note)
    )


ASSET_LISTS = ConfigKind(_KIND, _owns, _in_force, _to_texts, _from_texts, put_all=_put_all)
