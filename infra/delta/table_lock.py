"""The locks of a lake's tables: files of the lake, or of its writers' home where it is a bucket."""

from __future__ import annotations

import fcntl
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING

from infra.errors import Fatal
from infra.storage.paths import HOME, Location, claim_file
from infra.storage.state_file import StateFile

if TYPE_CHECKING:
    from infra.config.settings import Settings


@contextmanager
def table_locked(side: Path, name: str) -> Iterator[None]:
    """Alone with the table of this name, other processes included.

    `side`: what lies beside the lake's tables (`Settings.lake_side`).
    """
    lock = _lock(side, name)
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        # The kernel drops it when the process dies, so a crash leaves no stale lock. The file is
        # never deleted: a second process could then lock a new file of the same name.
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _lock(side: Path, name: str) -> Path:
    return side / "_locks" / name


def require_locks_here(settings: Settings) -> None:
    """Refuse a lake in a bucket whose locks lie in another home.

    A bucket has no locks, so those of its tables are files of the home. Its first writer leaves
    there which home that is. The caller is alone in this home.
    """
    own = _home(settings.lake_side)
    ours = own.read()
    if ours is None:
        ours = _Home(uuid.uuid4().hex, gethostname(), str(settings.home.absolute()))
        own.write(ours)
    mark = settings.lake_root / HOME
    # The first to claim it stands; then it is read, as another home may have been first.
    claim_file(mark, json.dumps(asdict(ours)))
    theirs = _home(settings.lake_root).read()
    if theirs is not None and theirs.id != ours.id:
        raise Fatal(
            f"{settings.lake_root}: its writers keep their locks in {theirs.home} of host "
            f"{theirs.host}, and two homes would overwrite each other's commits: use that home, "
            f"or, if it is gone for good, delete {mark} and start again"
        )


def at_home(settings: Settings, name: str) -> bool:
    """Whether the lock with which a table's writers keep each other away lies in this home.

    For who only reads: it claims nothing, and makes nothing.
    """
    ours, theirs = _home(settings.lake_side).read(), _home(settings.lake_root).read()
    # By id, as two machines can have the same host name and the same path of a home.
    same = ours is not None and theirs is not None and ours.id == theirs.id
    return same and _lock(settings.lake_side, name).exists()


@dataclass(frozen=True)
class _Home:
    """Which home the locks of a lake lie in."""

    id: str
    host: str
    home: str


def _home(folder: Location) -> StateFile[_Home]:
    remedy = "copy the one of the lake over that of its home, or the other way"
    return StateFile(folder / HOME, _Home, remedy, newer_keys=True)
