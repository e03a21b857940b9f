"""What the system says of a process that stands back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_SESSION = Path("/proc/self/autogroup")
_CODE = """
import json, os, threading
from pathlib import Path
from infra.process import priority
{before}
priority.stand_back({nice})
threads = {{}}
def low():
    priority.lower_thread()
    threads["low"] = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
thread = threading.Thread(target=low)
thread.start()
thread.join()
print(json.dumps({{
    "process": os.getpriority(os.PRIO_PROCESS, 0),
    "session": (Path("/proc/self/autogroup").read_text().split() or [None])[-1] if {proc} else None,
    **threads,
}}))
"""


def _stood_back(nice: int, before: str = "", *, own_session: bool = True) -> dict[str, Any]:
    code = _CODE.format(nice=nice, before=before, proc=_SESSION.exists())
    # Nice of the tests themselves: a process cannot be less.
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, start_new_session=own_session, check=True
    )
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_a_process_its_session_and_its_long_questions_stand_back() -> None:
    usual = _stood_back(0)
    assert usual["low"] == usual["process"]
    if usual["process"] > 7:
        pytest.skip("the tests run at a low priority themselves")
    lowered = _stood_back(7)
    assert lowered["process"] == 7
    assert lowered["low"] == (12 if sys.platform == "linux" else 7)
    if _SESSION.exists():
        assert (usual["session"], lowered["session"]) == ("0", "7")


def test_the_session_of_somebody_else_is_left_as_it_is() -> None:
    if not _SESSION.exists():
        pytest.skip("sessions have no nice value here")
    session = _SESSION.read_text("ascii").split()
    if not session:
        pytest.skip("the tests run in the session of the system itself, which has no nice value")
    assert _stood_back(7, own_session=False)["session"] == session[-1]


def test_a_session_that_is_lower_is_not_raised() -> None:
    if not _SESSION.exists():
        pytest.skip("sessions have no nice value here")
    assert _stood_back(7, "priority.lower_session(15)")["session"] == "15"


def test_a_system_without_such_sessions_has_nice_alone() -> None:
    nowhere = "priority._SESSION = Path('/nowhere/autogroup')"
    told = _stood_back(7, nowhere)
    assert told["process"] >= 7
    assert told["session"] in (None, "0")


def test_a_change_that_came_too_soon_is_made_again() -> None:
    busy = """
class Busy:
    texts = []
    def read_text(self, _): return "/autogroup-1 nice 0"
    def write_text(self, text, _):
        self.texts.append(text)
        if len(self.texts) < 3:
            raise BlockingIOError
priority._SESSION = Busy()
import atexit
atexit.register(lambda: None if Busy.texts == ["7"] * 3 else os._exit(3))
"""
    assert _stood_back(7, busy)["process"] >= 7
