"""Fetches feeds and puts what they say in the place of their lists.

A feed that fails keeps the list that it had; its state says since when, and why.
"""

from __future__ import annotations

import hashlib
import json
import time
from datetime import UTC, datetime, timedelta
from itertools import islice

from alerts.compiler.indicator_lists import FEED, KEPT_DAYS, ListStore
from alerts.feeds.bounded_session import ServerBusy
from alerts.feeds.feed_state import FeedState, feeds_folder, state_file
from alerts.feeds.feed_store import FeedStore
from alerts.feeds.misp import read_misp
from alerts.feeds.taxii import read_collection
from alerts.rulebook.rule_store import recompile
from alerts.rulepack.locations import store_folder
from infra.config.intelligence_section import MispFeedSettings, TaxiiFeedSettings
from infra.config.settings import Settings
from infra.errors import HeadgateError, Usage
from infra.storage.file_lock import ExclusiveLock

_NOT_ORIGIN = {
    "name", "list", "every_minutes", "secret", "secret_env", "secret_file", "ca_file",
    "allow_http", "max_seconds", "max_megabytes", "max_indicators",
}  # fmt: skip
"""Settings that do not change what a feed says; when another one does, it is read anew."""

Feed = TaxiiFeedSettings | MispFeedSettings
"""A feed of any kind that can be fetched."""

_REASONS = 20
"""Most reasons that the state of a feed names; the others are counted together."""


def feed_named(settings: Settings, name: str) -> Feed:
    """The feed of that name. Raises `Usage` where there is none."""
    feed = next((feed for feed in settings.intelligence.feeds if feed.name == name), None)
    if feed is None:
        names = ", ".join(feed.name for feed in settings.intelligence.feeds) or "none"
        raise Usage(f"no feed '{name}' in the settings; there are: {names}")
    return feed


def fetch_feed(settings: Settings, feed: Feed, *, anew: bool = False) -> FeedState:
    """Fetch one feed and renew its list; returns how the feed stands then.

    `anew`: forget what was read and read all, as for what a server deleted without revoking it.
    Failures are in the state that is returned. Raises `Taken` while another process fetches it.
    """
    lock = ExclusiveLock(
        feeds_folder(settings) / f"{feed.name}.lock",
        lambda holder: f"feed {feed.name} is being fetched by process {holder}",
    )
    try:
        file = state_file(settings, feed)
        state = file.read_or(FeedState(), lambda _: None)
        state.tried_at, state.not_before = time.time(), 0.0
        try:
            _fetch(settings, feed, state, anew)
        except HeadgateError as error:
            state.problem = str(error)
            state.failed_since = state.failed_since or state.tried_at
            if isinstance(error, ServerBusy):
                state.not_before = time.time() + error.wait_seconds
        else:
            state.problem, state.failed_since = None, None
            state.succeeded_at = time.time()
        file.write(state)
        return state
    finally:
        lock.release()


def _fetch(settings: Settings, feed: Feed, state: FeedState, anew: bool) -> None:
    lists = ListStore(store_folder(settings))
    before = lists.lists().get(feed.list_name)
    if before is not None and before.file != f"{FEED}{feed.name}":
        raise Usage(
            f"list '{feed.list_name}' is there already, from {before.file}: remove it, or let the "
            "feed keep another (list = ...)"
        )
    store = FeedStore(feeds_folder(settings) / f"{feed.name}.sqlite", _origin(feed))
    try:
        if anew:
            with store.page():
                store.clear()
        if isinstance(feed, MispFeedSettings):
            read_misp(feed, store)
        else:
            read_collection(feed, store)
        with store.page():
            # A list keeps what ended lately: events of then may still come.
            store.forget_ended(datetime.now(UTC) - timedelta(days=KEPT_DAYS))
        refused = store.refused()
        result = lists.put_feed(
            feed.list_name, feed.name, list(store.entries(feed.name)), sum(refused.values())
        )
        state.indicators, state.entries = store.objects(), result.listing.entries
        state.refused = dict(islice(refused.items(), _REASONS))
        if rest := sum(refused.values()) - sum(state.refused.values()):
            state.refused["other reasons"] = rest
    finally:
        store.close()
    if before is None or before.hash != result.listing.hash:
        recompile(settings)


def _origin(feed: Feed) -> str:
    values = feed.model_dump(mode="json", exclude=_NOT_ORIGIN)
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
