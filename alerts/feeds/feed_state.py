"""How each feed stands, as the newest fetch left it beside the lists."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from alerts.rulepack.locations import FOLDER, store_folder
from infra.config.intelligence_section import FeedSettings
from infra.config.settings import Settings
from infra.errors import Fatal, Usage
from infra.runtime.machine_checks import Finding
from infra.storage.state_file import StateFile

_MISSED = 3
"""Times that a fetch may be missed (a restart, a long one) before a feed counts as stale."""


@dataclass
class FeedState:
    """How a feed stands; times are seconds since 1970, UTC."""

    tried_at: float = 0.0
    succeeded_at: float | None = None
    failed_since: float | None = None
    problem: str | None = None
    not_before: float = 0.0
    """Before then the server does not want to be asked again."""
    indicators: int = 0
    entries: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    """Indicators of which something could not be used, by reason."""

    def is_due(self, feed: FeedSettings, now: float) -> bool:
        """Whether it is time to fetch again; a time ahead is of a clock that was wrong."""
        waited = not self.tried_at <= now < self.tried_at + feed.every_minutes * 60
        return waited and not now < self.not_before < now + feed.every_minutes * 60

    def trouble(self, feed: FeedSettings, now: float) -> str | None:
        """Why its list is older than it should be; None when it is well or was never fetched."""
        kept = f"its list is as of {_when(self.succeeded_at)}"
        if self.problem is not None:
            return f"fails since {_when(self.failed_since)}: {self.problem}; {kept}"
        late = self.succeeded_at is not None and now - self.succeeded_at > (
            _MISSED * feed.every_minutes * 60
        )
        return f"was not fetched in due time; {kept}" if late else None


def feeds_folder(settings: Settings) -> Path:
    """Where feeds are kept: beside the lists that are made of them."""
    return store_folder(settings) / FOLDER / "feeds"


def state_file(settings: Settings, feed: FeedSettings) -> StateFile[FeedState]:
    """The file in which a fetch leaves how the feed stands."""
    return StateFile(
        feeds_folder(settings) / f"{feed.name}.json",
        FeedState,
        "remove it: the feed counts as never fetched until the next time",
    )


def feed_findings(settings: Settings) -> Iterator[Finding]:
    """One line a feed, for `headgate doctor` and `headgate status`."""
    now = time.time()
    for feed in settings.intelligence.feeds:
        try:
            state = state_file(settings, feed).read() or FeedState()
            trouble = state.trouble(feed, now)
        except Fatal as error:
            yield Finding("feed", f"{feed.name}: its state cannot be read", str(error))
            continue
        well = f"{state.entries} entries as of {_when(state.succeeded_at)}"
        if not state.tried_at:
            well = "not fetched yet"
        remedy = f"headgate indicators fetch {feed.name}" if trouble else None
        yield Finding("feed", f"{feed.name}: {trouble or well}", remedy)


def _when(seconds: float | None) -> str:
    if seconds is None:
        return "never"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%MZ")


def require_no_feed(settings: Settings, name: str) -> None:
    """Raises `Usage` for a list that a feed of the settings keeps: it would undo the change."""
    keeper = next((f.name for f in settings.intelligence.feeds if f.list_name == name), None)
    if keeper is not None:
        raise Usage(f"list '{name}' is kept by feed {keeper} of the settings; change that instead")
