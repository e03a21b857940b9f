"""A story that is told on the first page while its logs are replayed: what happens, what one sees.

`headgate demo` leaves it in its home; a home without it has none.
"""

from __future__ import annotations

import json
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from alerts.domain.alert_body import in_body
from api.services.alert_index import INDEX
from api.services.reader import Reader, ReaderRow
from infra.config.settings import Settings
from infra.storage.atomic_files import write_whole

FILE = "story.json"
FRESH_SECONDS = 1800.0
"""After that long the page has it folded."""
_ALERTS = f"""
SELECT alert_id, revision, reason, rule_name, level, status AS attribution, entity_type,
       entity_value, previous_entity, hostname, first_event_time
FROM {INDEX}
WHERE first_event_time >= to_timestamp($began - 30) ORDER BY first_event_time LIMIT 500
"""
_NAMED_BEFORE = f"""
SELECT alert_id, {in_body("attribution.previous.hostname")} AS previous_name
FROM gold.alert_current WHERE previous_entity IS NOT NULL LIMIT 500
"""


@dataclass(frozen=True)
class Beat:
    """A moment of the story."""

    second: str
    """As it is written, a second or from-to."""
    what: str
    see: str
    rules: Sequence[str] = ()
    """Titles of the rules whose alerts belong here."""
    about: Sequence[str] = ()
    """Only alerts that name or named one of these; none: all."""
    alerts: list[ReaderRow] = field(default_factory=list)
    state: str = "ahead"
    """`over`, `now` or `ahead`."""

    @property
    def begins(self) -> float:
        """Seconds from the story's beginning, at speed 1."""
        return float(self.second.split("-")[0])


@dataclass(frozen=True)
class DemoStory:
    """The story as it stands at an instant."""

    title: str
    seconds: float
    """How far it is, in its own seconds."""
    beats: list[Beat]
    corrected: list[ReaderRow]
    """Alerts that named another device at first, or went to another alert."""
    fresh: bool


def story_beats(file: Path) -> tuple[str, list[dict[str, Any]]]:
    """Title and beats of a story's TOML file."""
    written = tomllib.loads(file.read_text("utf-8"))
    return str(written["title"]), list(written["beat"])


def begin_story(settings: Settings, file: Path, speed: float) -> None:
    """Let the console tell the story of a TOML file from now on; `speed` shortens its seconds."""
    title, beats = story_beats(file)
    begun = {"title": title, "began": time.time(), "speed": speed, "beats": beats}
    # Whole or not at all: the page may look at any moment.
    write_whole(settings.home / FILE, json.dumps(begun))


def demo_story(settings: Settings, reader: Reader, now: float) -> DemoStory | None:
    """The story as it stands at the epoch second `now`; None where none is told."""
    try:
        written = json.loads((settings.home / FILE).read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    began = float(written["began"])
    seconds = (now - began) * float(written["speed"])
    rows = reader.rows(_ALERTS, {"began": began}, needs=(INDEX,))
    beats = [Beat(**each) for each in written["beats"]]
    begun = [place for place, beat in enumerate(beats) if beat.begins <= seconds]
    last = begun[-1] if begun and seconds < beats[-1].begins + 20 else None
    corrected = [row for row in rows if row["previous_entity"] or row["reason"] == "superseded"]
    names = {
        row["alert_id"]: row["previous_name"]
        for row in (reader.rows(_NAMED_BEFORE, needs=("gold.alert_current",)) if corrected else ())
    }
    return DemoStory(
        title=str(written["title"]),
        seconds=seconds,
        beats=[
            replace(beat, alerts=_alerts_of(beat, rows), state="now" if place == last else "over")
            if place in begun
            else beat
            for place, beat in enumerate(beats)
        ],
        corrected=[row | {"previous_name": names.get(row["alert_id"])} for row in corrected],
        fresh=now - began < FRESH_SECONDS,
    )


def _alerts_of(beat: Beat, rows: list[ReaderRow]) -> list[ReaderRow]:
    about = set(beat.about)
    return [
        row
        for row in rows
        if row["rule_name"] in beat.rules
        and (not about or about & {row["entity_value"], row["previous_entity"]})
    ][:4]
