"""Assets and users as inventories list them: read, and loaded by `headgate assets import`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from api.services.act_store import new_id
from api.services.reader import numbered_place
from api.services.runs.command_runs import CommandRuns
from api.wire import runs as wire
from enrich.assets.loader import entries_in_force
from enrich.assets.registers import REGISTERS
from infra.config.settings import Settings
from infra.errors import Fatal, Retryable
from infra.process.subprocesses import CommandResult
from infra.storage.atomic_files import write_private

KIND = "inventory"
_VISIBLE = "in events and alerts from the next batch on, once the load is done"


class InventoryDesk:
    """Reads what is in force without Spark; a load that changes something takes a JVM, apart."""

    def __init__(self, settings: Settings, runs: CommandRuns) -> None:
        self._settings = settings
        self._runs = runs

    def page(
        self, register: str, inventory: str | None, text: str, limit: int, cursor: str | None
    ) -> wire.InventoryPage:
        """Entries in force, by inventory and id; `text` stands in the id or a column."""
        wanted = text.casefold()
        listed = entries_in_force(self._settings, REGISTERS[register])
        items = [
            wire.InventoryItem(inventory=name, id=entry_id, values=values)
            for name, entries in sorted(listed.items())
            if inventory in (None, name)
            for entry_id, values in sorted(entries.items())
            if wanted in f"{entry_id} {json.dumps(values, ensure_ascii=False)}".casefold()
        ]
        first = numbered_place(cursor)
        after = first + limit
        return wire.InventoryPage(
            items=items[first:after],
            total=len(items),
            next=str(after) if after < len(items) else None,
        )

    def load(self, who: str, register: str, given: wire.InventoryEntries) -> wire.InventoryLoad:
        """Ask for a load of a list, whole or of what is other."""
        file = self._settings.home.absolute() / "api" / "loads" / f"{new_id()}.jsonl"
        lines = "\n".join(json.dumps(entry) for entry in given.entries)
        try:
            write_private(file, lines + "\n")
        except OSError as error:
            raise Retryable(f"{file.parent}: cannot be written ({error.strerror})") from error
        options = [f"--inventory={given.inventory}", "--output=json"]
        options += ["--partial"] if given.partial else []
        options += ["--accept-removals"] if given.accept_removals else []
        if given.valid_from is not None:
            options.append(f"--valid-from={given.valid_from.isoformat()}")
        about: dict[str, Any] = {
            "register_name": register,
            "inventory": given.inventory,
            "counts": None,
            "refused": [],
        }
        run = self._runs.submit(
            KIND,
            who,
            about,
            (register, "import", str(file), *options),
            _outcome,
            lambda: file.unlink(missing_ok=True),
        )
        return _shown(run)

    def get(self, name: str) -> wire.InventoryLoad:
        """One load; raises `NoSuchAct`."""
        return _shown(self._runs.get(KIND, name))

    def listed(self) -> wire.InventoryLoads:
        """Loads of the last days."""
        return wire.InventoryLoads(items=[_shown(run) for run in self._runs.listed(KIND)])


def _outcome(result: CommandResult) -> Mapping[str, Any]:
    # 1: some entries were refused, and the others are in.
    if result.code not in (0, 1) or not result.printed.strip():
        raise Fatal(result.sentence or f"the command ended with {result.code}")
    done = json.loads(result.printed.splitlines()[-1])
    counts = {name: done[name] for name in wire.LoadCounts.model_fields}
    refused = [{"entry": each["line"], "reason": each["reason"]} for each in done["refused"]]
    return {"counts": counts, "refused": refused}


def _shown(run: dict[str, Any]) -> wire.InventoryLoad:
    known = {name: value for name, value in run.items() if not name.startswith("pid")}
    return wire.InventoryLoad.model_validate({**known, "visible": _VISIBLE})
