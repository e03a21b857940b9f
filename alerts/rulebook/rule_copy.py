"""The text that somebody begins with who writes a rule: a new one, or a copy of another's.

A copy keeps every line and comment of the rule; it has an id and a name of its own, and says what
it derives from.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from uuid import uuid4

from infra.errors import Usage
from infra.process.text_output import json_text

_BREAK = re.compile(r"^---[^\n]*\n", re.M)
_NAME = re.compile(r"""^name:[ \t]*(["']?)([A-Za-z0-9_-]+)\1[ \t]*(?:#.*)?$""", re.M)


def copied_text(text: str, rule_id: str) -> str:
    """The rule of that id out of the text of its file, as one of its own.

    Raises `Usage` where the text names the id in another way than on a line of its own.
    """
    identity = re.compile(rf"""^id:[ \t]*(["']?){re.escape(rule_id)}\1[ \t]*(?:#.*)?$""", re.M)
    rule = next((each for each in _BREAK.split(text) if identity.search(each)), None)
    if rule is None:
        raise Usage(
            f"rule {rule_id} is not copied: its file has no line 'id: {rule_id}'; write a new rule "
            "and paste what you need"
        )
    derived = "" if re.search(r"^related:", rule, re.M) else (
        f"\nrelated:\n  - {{id: {json_text(rule_id)}, type: derived}}"
    )  # fmt: skip
    copied = identity.sub(lambda _: f"id: {uuid4()}{derived}", rule, count=1)
    return _NAME.sub(lambda name: f"name: {name[2][:70]}_own", copied, count=1).lstrip("\n")


def new_name() -> str:
    """A name for a rule that no other has."""
    return f"my_rule_{uuid4().hex[:6]}"


def new_text(author: str) -> str:
    """A rule that loads and whose tests pass, to be written over."""
    return f"""title: What it finds, in a few words
name: {new_name()}
id: {uuid4()}
status: experimental
description: What it finds, and why that matters.
author: {json_text(author)}
date: {datetime.now(UTC).date().isoformat()}
tags: [attack.credential-access, attack.t1110]
logsource: {{product: linux, service: sshd}}
detection:
  selection:
    activity_id: 1
    status_id: 2
    user.name: root
  condition: selection
falsepositives:
  - What looks like this and is harmless.
level: medium
headgate:
  runbook: >
    What to look at first when it fires.
  tests:
    match:
      - {{service.name: sshd, activity_id: 1, status_id: 2, user.name: root}}
    no_match:
      - {{service.name: sshd, activity_id: 1, status_id: 1, user.name: root}}
"""
