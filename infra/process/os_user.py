"""Who runs this process, for the rows of ops.audit."""

from __future__ import annotations

import os
import pwd


def acting_user() -> str:
    """Name of the account, or `uid N` where it has none; through sudo also who called it.

    The environment's LOGNAME and USER are not asked: anybody can set them to any name.
    """
    uid = os.getuid()
    name = _name(uid)
    caller = os.environ.get("SUDO_UID", "")
    # Only root's word counts for who stands behind root.
    return f"{_name(int(caller))} as {name}" if uid == 0 and caller.isdecimal() else name


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
