"""Attributes of a MISP server (REST), or of a MISP feed (a folder of events), as indicators.

The server is asked for what was published since the last run; of a feed those events are read
whose time in its manifest is another than when they were read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import requests

from alerts.feeds.bounded_session import BoundedAdapter, ServerFailed, open_session
from alerts.feeds.feed_store import FeedObject, FeedStore
from alerts.feeds.indicator_objects import (
    BELOW_SCORE,
    end_by_age,
    feed_instant,
    feed_object,
    is_enough,
    score_of,
)
from alerts.rulepack.indicator_file_format import IndicatorEntry
from infra.config.intelligence_section import MispFeedSettings

PAGE = 1_000
"""Attributes that are asked for at once."""

_SINCE, _EVENT = "published_since", "event "
_OVERLAP = timedelta(minutes=5)
"""Asked for again: an event that was being published while the last run read."""

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_THREAT_LEVELS = {"1": "high", "2": "medium", "3": "low"}

_HASHES = ("md5", "sha1", "sha256")
_FIRST, _SECOND = 0, 1
KINDS: Mapping[str, tuple[tuple[str, int], ...]] = {
    **dict.fromkeys(("ip-src", "ip-dst"), (("network", _FIRST),)),
    **dict.fromkeys(("ip-src|port", "ip-dst|port"), (("network", _FIRST),)),
    **dict.fromkeys(("domain", "hostname", "hostname|port"), (("domain", _FIRST),)),
    "domain|ip": (("domain", _FIRST), ("network", _SECOND)),
    "url": (("url", _FIRST),),
    **dict.fromkeys(("email", "email-src", "email-dst"), (("email", _FIRST),)),
    **dict.fromkeys((*_HASHES, *(f"x509-fingerprint-{n}" for n in _HASHES)), (("hash", _FIRST),)),
    **dict.fromkeys((*(f"filename|{n}" for n in _HASHES), "malware-sample"), (("hash", _SECOND),)),
}
"""Types of attributes that can be an entry: its kind, and which of the parts around `|` it is."""


def read_misp(feed: MispFeedSettings, store: FeedStore) -> None:
    """Read what is new into the store.

    Raises `ServerFailed`; what came before the failure is in the store.
    """
    # A server takes its key as it is (no `Bearer`); a feed is files behind a web server.
    with _session(feed) as (session, adapter):
        if feed.form == "feed":
            _read_feed(feed, store, session)
        else:
            _read_server(feed, store, session, adapter)


@contextmanager
def _session(feed: MispFeedSettings) -> Iterator[tuple[requests.Session, BoundedAdapter]]:
    session, adapter = open_session(feed, feed.user, scheme="")
    session.headers["Accept"] = "application/json"
    try:
        yield session, adapter
    except requests.RequestException as error:
        raise ServerFailed(f"{type(error).__name__}: {str(error)[:300]}") from None
    # Answers of another shape than MISP's end in any of these.
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        reason = str(error).splitlines() or [""]
        raise ServerFailed(f"no MISP: {type(error).__name__}: {reason[0][:300]}") from None
    except RecursionError:
        raise ServerFailed("no MISP: JSON that nests too deeply") from None
    finally:
        session.close()


def _read_server(
    feed: MispFeedSettings, store: FeedStore, session: requests.Session, adapter: BoundedAdapter
) -> None:
    """Ask `attributes/restSearch` page by page."""
    since = store.place(_SINCE)
    search: dict[str, Any] = {
        "returnFormat": "json",
        "type": list(KINDS),
        "published": True,
        "limit": PAGE,
        "includeEventTags": True,
        "includeDecayScore": True,
        "enforceWarninglist": feed.enforce_warninglists,
    }
    if feed.tags:
        search["tags"] = list(feed.tags)
    # By when its event was published, not by its own time: an attribute may be old and new to us.
    # Then also those that were deleted or are no indicator any more, to take them away.
    search |= {"publish_timestamp": since, "deleted": [0, 1]} if since else {"to_ids": True}
    url, page, begun = f"{feed.url.rstrip('/')}/attributes/restSearch", 1, ""
    while True:
        answer = session.post(url, json=search | {"page": page})
        _require_ok(answer)
        # By the server's clock, which is the one that says when an event was published.
        begun = begun or _clock(adapter.headers.get("date"))
        attributes = json.loads(answer.content)["response"]["Attribute"]
        with store.page():
            store.put(
                _indicator(feed, each, each["Event"], each.get("Tag") or ()) for each in attributes
            )
            _require_few(feed, store)
        if len(attributes) < PAGE:
            break
        page += 1
    # After the last page: a run that broke off asks for all of it again.
    with store.page():
        store.set_place(_SINCE, begun)


def _clock(header: str | None) -> str:
    """Seconds since 1970 from which the next run asks."""
    try:
        begun = parsedate_to_datetime(header or "")
    except (TypeError, ValueError):
        begun = datetime.now(UTC)
    # A header without a zone is of UTC (RFC 9110, 5.6.7), and not of this machine's.
    begun = begun if begun.tzinfo else begun.replace(tzinfo=UTC)
    return str(int((begun - _OVERLAP).timestamp()))


def _read_feed(feed: MispFeedSettings, store: FeedStore, session: requests.Session) -> None:
    """Read the events that the manifest has and that are not as they were."""
    root = feed.url.rstrip("/")
    manifest = _json(session, f"{root}/manifest.json")
    known = store.places(_EVENT)
    for gone in known.keys() - {f"{_EVENT}{uuid}" for uuid in manifest}:
        with store.page():
            store.forget(f"{gone.removeprefix(_EVENT)}/")
            store.forget_place(gone)
    for uuid, about in sorted(manifest.items()):
        # It becomes part of a URL.
        if not _UUID.fullmatch(uuid):
            raise ServerFailed(f"its manifest names an event '{uuid[:60]}', which is no UUID")
        changed = str(about["timestamp"])
        if known.get(f"{_EVENT}{uuid}") == changed:
            continue
        event = _json(session, f"{root}/{uuid}.json")["Event"]
        with store.page():
            # The file is the whole event: what is not in it any more is gone.
            store.forget(f"{uuid}/")
            if not feed.tags or _names(event.get("Tag")) & {*feed.tags}:
                store.put(
                    _indicator(feed, each, event | {"uuid": uuid}, event.get("Tag") or ())
                    for each in _attributes(event)
                )
            _require_few(feed, store)
            store.set_place(f"{_EVENT}{uuid}", changed)


def _attributes(event: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The attributes of an event that are meant to be sought, those of its objects too."""
    yield from (each for each in event.get("Attribute") or () if _is_sought(each))
    for made_of in event.get("Object") or ():
        yield from (each for each in made_of.get("Attribute") or () if _is_sought(each))


def _is_sought(attribute: Mapping[str, Any]) -> bool:
    """Whether it is an indicator (`to_ids`), and not deleted."""
    return bool(attribute.get("to_ids")) and not attribute.get("deleted")


def _indicator(
    feed: MispFeedSettings, attribute: Mapping[str, Any], event: Mapping[str, Any], more_tags: Any
) -> FeedObject:
    """An attribute as a feed object: none of its entries where it is to be sought no more."""
    object_id = f"{str(event['uuid'])[:36]}/{str(attribute['uuid'])[:36]}"
    try:
        changed = _instant(attribute["timestamp"])
        if not _is_sought(attribute):
            return FeedObject(object_id, changed)
        parts = KINDS.get(str(attribute["type"]))
        if parts is None:
            return FeedObject(object_id, changed, refused=f"type {str(attribute['type'])[:40]}")
        tags = _names(attribute.get("Tag")) | _names(more_tags) | _names(event.get("Tag"))
        level = _THREAT_LEVELS.get(str(event.get("threat_level_id")))
        labels = {*tags, f"threat-level:{level}"} if level else tags
        score = score_of(_decayed(attribute), labels, feed)
        if not is_enough(score, feed):
            return FeedObject(object_id, changed, refused=BELOW_SCORE)
        seen = max(changed, feed_instant(attribute.get("last_seen") or None) or changed)
        until = end_by_age(seen, feed)
    except (ValueError, OverflowError, TypeError):
        return FeedObject(object_id, datetime.now(UTC), refused="a time or score that is none")
    values = str(attribute["value"]).split("|", 1)
    return feed_object(
        object_id,
        changed,
        [
            (kind, values[part], "") if part < len(values) else (kind, "", "a value without its |")
            for kind, part in parts
        ],
        IndicatorEntry(
            "", "", str(attribute.get("comment") or event.get("info") or ""), until, score
        ),
    )


def _decayed(attribute: Mapping[str, Any]) -> float | None:
    """The best score that the server's decaying models leave it; None where it has none."""
    scores = [float(each["score"]) for each in attribute.get("decay_score") or ()]
    return max(scores, default=None)


def _names(tags: Any) -> set[str]:
    return {str(tag["name"]) for tag in tags or ()}


def _instant(seconds: Any) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)


def _json(session: requests.Session, url: str) -> Any:
    answer = session.get(url)
    _require_ok(answer)
    return json.loads(answer.content)


def _require_ok(answer: requests.Response) -> None:
    if answer.ok:
        return
    try:
        reason = str(json.loads(answer.content)["message"])[:200]
    except (ValueError, LookupError, TypeError, RecursionError):
        reason = ""
    where = answer.url.rpartition("/")[2]
    raise ServerFailed(f"{where}: it answers {answer.status_code}{reason and ': '}{reason}")


def _require_few(feed: MispFeedSettings, store: FeedStore) -> None:
    if store.objects() > feed.max_indicators:
        raise ServerFailed(f"more than {feed.max_indicators} indicators (max_indicators)")
