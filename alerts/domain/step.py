"""A step: what a program did to a program, as models count it and rules write it.

"winword.exe started cmd.exe": the names are the ends of paths in small letters, and "#" stands for
what differs from one installation to the next.
"""

from __future__ import annotations

import re

STEPS = "steps"
"""The feature of a rule that judges steps; it stands alone."""

STEP_VERBS = {1: "started", 3: "opened", 4: "injected into"}
"""OCSF's activities of a process that are steps."""

LAST_PART = r"[^\\/]+$"
VARIES = r"[0-9a-f]{8,}|[0-9]+"
"""What differs from one installation of a program to the next; Java and Python read both alike."""

STEP_FORM = re.compile("(.*?) (" + "|".join(STEP_VERBS.values()) + ") (.*)", re.DOTALL)


def program(path: str) -> str:
    """The name by which a program is counted: the end of its path, without numbers."""
    last = re.search(LAST_PART, path.lower())
    return re.sub(VARIES, "#", last[0]) if last else ""


def is_step(text: str) -> bool:
    """Whether a text is one, as rules write it in their tests."""
    match = STEP_FORM.fullmatch(text)
    return match is not None and all(match[n] == program(match[n]) != "" for n in (1, 3))
