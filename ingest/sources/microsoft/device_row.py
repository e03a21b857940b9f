"""A row of one of the tables that devices fill: what all of them say of a file and of who acted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ingest.parsing.ocsf import kept
from ingest.parsing.source import Event
from ingest.sources.cloud.common import Fields, take_name, take_number, take_text
from ingest.sources.cloud.record import CloudRecord, person
from ingest.sources.shared.firewall import file_hash

NAMELESS: Fields = {"name": "unknown", "type_id": 0}
PID = 2**32 - 1


def user_of(fields: Fields, prefix: str) -> Fields | None:
    """The account that `prefix` names: `Account`, `InitiatingProcessAccount`, `RequestAccount`."""
    name, uid = take_text(fields, f"{prefix}Name"), take_text(fields, f"{prefix}Sid")
    if name is None and uid is None:
        return None
    return person(name, uid, domain=take_text(fields, f"{prefix}Domain"))


def _path(folder: str | None, name: str | None) -> str | None:
    """The whole path; `FolderPath` mostly holds the name already, for some tables it does not."""
    if folder and name and not folder.lower().endswith(name.lower()):
        return folder.rstrip("\\") + "\\" + name
    return folder


def file_of(fields: Fields, prefix: str = "") -> Fields | None:
    name = take_text(fields, f"{prefix}FileName")
    path = _path(take_text(fields, f"{prefix}FolderPath"), name)
    hashes = [
        element
        for key in ("SHA256", "SHA1", "MD5")
        for element in file_hash(take_text(fields, f"{prefix}{key}")) or ()
    ]
    size = take_number(fields, f"{prefix}FileSize", most=2**63 - 1)
    leaves = kept(name=name or (path or "").rpartition("\\")[2] or None, path=path, size=size)
    return leaves | {"hashes": hashes or None, "type_id": 1} if "name" in leaves else None


def uid_of(fields: Fields, name: str, pid: int | None) -> str | None:
    """A process' own id; OCSF wants one where it has no number."""
    return take_name(fields, name) or (None if pid is not None else "unknown")


def _acting(fields: Fields) -> Fields | None:
    """The process that did it (`InitiatingProcess...`)."""
    prefix = "InitiatingProcess"
    file = file_of(fields, prefix)
    pid = take_number(fields, f"{prefix}Id", most=PID)
    user = user_of(fields, f"{prefix}Account")
    parent = kept(
        pid=take_number(fields, f"{prefix}ParentId", most=PID),
        name=take_text(fields, f"{prefix}ParentFileName"),
    )
    line = take_text(fields, f"{prefix}CommandLine")
    if pid is None and file is None:
        return None
    return kept(
        pid=pid,
        uid=uid_of(fields, f"{prefix}UniqueId", pid),
        name=(file or {}).get("name"),
        path=(file or {}).get("path"),
        cmd_line=line,
        user=user,
        # A process without a number needs an id in OCSF; a parent's bare name is no process.
        parent=parent if "pid" in parent else None,
        hashes=(file or {}).get("hashes"),
    )


@dataclass(slots=True)
class Row:
    """A row of a table; `fields` is what has not been used."""

    record: CloudRecord
    table: str
    action: str
    columns: dict[str, Any]

    @property
    def fields(self) -> Fields:
        return self.record.fields

    def event(self, class_uid: int, activity: int, **more: Any) -> Event:
        acting = _acting(self.fields)
        by = (acting or {}).get("user")
        event = self.record.event(
            class_uid,
            activity,
            **({"operation": self.action} | self.columns | {"by": by} | more),
        )
        if acting:
            event["actor"] = (event.get("actor") or {}) | {"process": acting}
        return event
