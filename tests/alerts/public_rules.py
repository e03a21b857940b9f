"""Rules in the styles that public ones use (`public_rules.yml`), as files of a clone."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import yaml

_FILE = yaml.safe_load(Path(__file__).with_suffix(".yml").read_text("utf-8"))
RULES: list[dict[str, Any]] = _FILE["loads"]
REFUSED: list[dict[str, Any]] = _FILE["refused"]
"""With the kind of refusal under `refused`."""


def document(number: int, rule: dict[str, Any]) -> str:
    """One rule file as public ones look, with author and licence."""
    return yaml.safe_dump(
        {
            "title": f"Synthetic {number}",
            "id": str(UUID(int=number + (4 << 76) + (8 << 60))),
            "status": "test",
            "description": "Written for a test.",
            "references": ["https://example.org/"],
            "author": "A. Tester, B. Tester",
            "date": "2024-01-01",
            "license": "DRL-1.1",
            "tags": ["attack.execution", "attack.t1059.001"],
            "logsource": rule["logsource"],
            "detection": rule["detection"],
            "falsepositives": ["Unknown"],
            "level": "high",
        }
    )
