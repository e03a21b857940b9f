"""When files of a lake's tables were last put back as they had been.

No commit tells of it, since the table has the same files as before. Who keeps what it read of them
looks at this mark, beside the tables.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from infra.storage.atomic_files import write_whole
from infra.storage.paths import Location, since

PUT_BACK = "_put_back"


def leave_put_back(root: Location) -> None:
    """Note below a lake's root that files of its tables were put back now."""
    mark = root / PUT_BACK
    write_whole(mark, repr(time.time()))
    if isinstance(mark, Path):
        # Root leaves it where the API, which has another name, is to read it.
        mark.chmod(0o644)
        if os.geteuid() == 0:
            owner = mark.parent.stat()
            os.chown(mark, owner.st_uid, owner.st_gid)


def put_back_at(root: Location) -> float:
    """When that was, seconds since 1970; 0.0: never, or nobody can tell.

    Raises `Retryable` where a store does not answer.
    """
    if not isinstance(root, Path):
        return dict(since(root, PUT_BACK)).get(PUT_BACK, 0.0)
    with suppress(OSError, ValueError):
        return float((root / PUT_BACK).read_text("utf-8"))
    return 0.0
