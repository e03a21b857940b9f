"""A TAXII 2.1 collection, read on from where it was left.

Objects come in the order in which they were added there, page by page; the server says up to when
(`X-TAXII-Date-Added-Last`), which is where the next run begins (`added_after`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import requests
from taxii2client.common import _HTTPConnection
from taxii2client.exceptions import TAXIIServiceException
from taxii2client.v21 import Collection

from alerts.feeds.bounded_session import BoundedAdapter, ServerFailed, open_session
from alerts.feeds.feed_store import FeedStore
from alerts.feeds.indicator_objects import stix_indicator
from infra.config.intelligence_section import TaxiiFeedSettings

PAGE = 1_000
"""Objects that are asked for at once; servers may give fewer."""

_ADDED_AFTER = "added_after"
_STEP = timedelta(microseconds=1)


@contextmanager
def open_collection(server: TaxiiFeedSettings) -> Iterator[tuple[Collection, BoundedAdapter]]:
    """A collection of the settings, with the bounds of its server.

    All that a server or the client library does wrong within becomes `ServerFailed`.
    """
    session, adapter = open_session(server, server.user)
    # The library's own connection has no bounds, and no public way to be given any.
    connection = _HTTPConnection(version="2.1")
    connection.session.close()
    connection.session = session
    url = f"{server.url.rstrip('/')}/collections/{server.collection}/"
    try:
        yield Collection(url, conn=connection), adapter
    except requests.HTTPError as error:
        raise ServerFailed(f"it answers {_reason(error.response)}") from None
    except requests.RequestException as error:
        raise ServerFailed(f"{type(error).__name__}: {str(error)[:300]}") from None
    # The library reads answers without looking: one of another shape ends in any of these.
    except (TAXIIServiceException, LookupError, TypeError, ValueError, AttributeError) as error:
        reason = str(error).splitlines() or [""]
        raise ServerFailed(f"no TAXII 2.1: {type(error).__name__}: {reason[0][:300]}") from None
    except RecursionError:
        raise ServerFailed("no TAXII 2.1: JSON that nests too deeply") from None
    finally:
        session.close()


def _reason(response: requests.Response | None) -> str:
    """Status and, where the server gives one, title of a refusal (TAXII 2.1, 3.6.1)."""
    if response is None:
        return "nothing"
    try:
        title = json.loads(response.content).get("title")
    except (ValueError, AttributeError, RecursionError):
        title = None
    return f"{response.status_code}: {str(title)[:200]}" if title else f"{response.status_code}"


def read_collection(feed: TaxiiFeedSettings, store: FeedStore) -> None:
    """Read what was added since the last run into the store.

    Raises `ServerFailed`; what came before the failure is in the store, and not asked for again.
    """
    with open_collection(feed) as (collection, adapter):
        more, cursor = True, ""
        after = store.place(_ADDED_AFTER)
        while more:
            bounds = {"added_after": after, "next": cursor}
            envelope = collection.get_objects(
                type="indicator",
                limit=PAGE,
                **{name: text for name, text in bounds.items() if text},
            )
            more, cursor = bool(envelope.get("more")), str(envelope.get("next") or "")
            last = adapter.headers.get("x-taxii-date-added-last")
            _keep_page(feed, store, envelope, last, is_last=not more)
            if more and not cursor:
                # Such a server wants to be asked again after the last object that it gave.
                before, after = after, last
                if after is None or after == before:
                    raise ServerFailed("it says that there is more, and not how to get it")


def _keep_page(
    feed: TaxiiFeedSettings,
    store: FeedStore,
    envelope: dict[str, Any],
    last: str | None,
    *,
    is_last: bool,
) -> None:
    arrived = datetime.now(UTC)
    objects = envelope.get("objects") or ()
    with store.page():
        store.put(
            stix_indicator(stix_object, arrived, feed)
            for stix_object in objects
            if stix_object["type"] == "indicator"
        )
        if store.objects() > feed.max_indicators:
            raise ServerFailed(f"more than {feed.max_indicators} indicators (max_indicators)")
        if last is not None:
            store.set_place(_ADDED_AFTER, last if is_last else _just_before(last))


def _just_before(added: str) -> str:
    """An instant before which nothing is missing, also where a run ends between two pages."""
    # Objects that were added at once have one time, and may be on two pages.
    instant = datetime.fromisoformat(added)
    instant = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    try:
        instant = instant.astimezone(UTC) - _STEP
    except OverflowError:
        raise ValueError(f"'{added[:60]}' is no time of an object") from None
    return instant.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
