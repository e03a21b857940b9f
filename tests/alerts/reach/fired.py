"""Whether a Sigma detection fires on a raw record, through parser and matcher."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import yaml

from alerts.compiler.compiler import Compiled, compile_rules
from alerts.matching.event_rows import brute_force, event_batch
from alerts.matching.matcher import Matcher
from tests.ingest.logs import rows


def compiled(logsource: dict[str, str], *detections: dict[str, Any]) -> Compiled:
    """The rules of these detections; a detection without condition is one selection."""
    documents = [
        {
            "title": f"Rule {number}",
            "id": str(UUID(int=number + (4 << 76) + (8 << 60))),
            "logsource": logsource,
            "detection": detection
            if "condition" in detection
            else {"selection": detection, "condition": "selection"},
        }
        for number, detection in enumerate(detections)
    ]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rules.yml"
        path.write_text(yaml.safe_dump_all(documents), "utf-8")
        return compile_rules([path])


def fired(logsource: dict[str, str], detection: dict[str, Any], source: str, raw: bytes) -> bool:
    """Whether the rule fires on what the source's parser makes of the record."""
    result = compiled(logsource, detection)
    assert not result.refused, result.refused
    events = [row for row in rows(source, raw) if row.get("dead_letter_reason") is None]
    assert events, rows(source, raw)
    hits = Matcher(result.pack).match(event_batch(events)).num_rows
    assert hits == len(brute_force(result.pack, events))
    return hits > 0
