"""The locks of a lake's tables: files of the lake, or of its writers' home where it is a bucket."""

from __future__ import annotations

import fcntl
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Any

from infra.errors import Fatal
from infra.storage.atomic_files import write_whole
from infra.storage.paths import HOME, Location, claim

if TYPE_CHECKING:
    from infra.config.settings import Settings


@contextmanager
def locked(side: Path, name: str) -> Iterator[None]:
    """Alone with the table of this name, other processes included.

    `side`: what lies beside the lake's tables (`Settings.lake_side`).
    """
    lock = _lock(side, name)
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _lock(side: Path, name: str) -> Path:
    return side / "_locks" / name


def require_home(settings: Settings) -> None:
    """Refuse a lake in a bucket whose locks lie in another home.

    A bucket has no locks, so those of its tables are files of the home. Its first writer leaves
    there which home that is. The caller is alone in this home.
    """
    kept = settings.lake_side / HOME
    if not kept.exists():
        said = {
            "id": uuid.uuid4().hex,
            "host": gethostname(),
            "home": str(settings.home.absolute()),
        }
        write_whole(kept, json.dumps(said))
    ours = json.loads(kept.read_text("utf-8"))
    mark = settings.lake_root / HOME
    found = json.loads(claim(mark, json.dumps(ours)))
    if found["id"] != ours["id"]:
        raise Fatal(
            f"{settings.lake_root}: its writers keep their locks in {found['home']} of host "
            f"{found['host']}, and two homes would overwrite each other's commits: use that home, "
            f"or, if it is gone for good, delete {mark} and start again"
        )


def at_home(settings: Settings, name: str) -> bool:
    """Whether the lock with which a table's writers keep each other away lies in this home.

    For who only reads: it claims nothing, and makes nothing.
    """
    ours, theirs = _told(settings.lake_side / HOME), _told(settings.lake_root / HOME)
    same = ours is not None and theirs is not None and ours["id"] == theirs["id"]
    return same and _lock(settings.lake_side, name).exists()


def _told(mark: Location) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(mark.read_text("utf-8"))
    except FileNotFoundError:
        return None
    return found
