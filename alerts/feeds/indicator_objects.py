"""Indicators of a feed as entries of a list: kind and value, end, score; or why not.

Reasons are of few kinds, so that they can be counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from alerts.feeds.feed_store import FeedObject
from alerts.indicators.import_formats import of_pattern
from alerts.rulepack.indicator_file_format import IndicatorEntry
from alerts.rulepack.indicator_normalisation import entry
from infra.config.intelligence_section import FeedSettings

BELOW_SCORE = "below min_score"
_LABEL_CHARS = 200


def stix_indicator(
    indicator: Mapping[str, Any], arrived: datetime, settings: FeedSettings
) -> FeedObject:
    """A STIX 2.1 indicator as a feed object; `arrived` counts where it does not say `modified`."""
    object_id = str(indicator.get("id", ""))[:200]
    try:
        modified = feed_instant(indicator.get("modified")) or arrived
        if indicator.get("revoked"):
            return FeedObject(object_id, modified)
        score = score_of(
            indicator.get("confidence"),
            [*_texts(indicator.get("labels")), *_texts(indicator.get("indicator_types"))],
            settings,
        )
        if not is_enough(score, settings):
            return FeedObject(object_id, modified, refused=BELOW_SCORE)
        until = feed_instant(indicator.get("valid_until")) or end_by_age(modified, settings)
    except ValueError:
        return FeedObject(object_id, arrived, refused="a time or score that is none")
    # `of_pattern` yields the same label for all values; ends are read once, above.
    plain = {name: indicator.get(name) for name in ("pattern", "pattern_type") if name in indicator}
    values = list(of_pattern(0, plain))
    label = str(indicator.get("name") or "")
    return feed_object(
        object_id,
        modified,
        [(value.kind, value.text, value.wrong) for value in values],
        IndicatorEntry("", "", label, until, score),
    )


def feed_object(
    object_id: str,
    modified: datetime,
    values: Iterable[tuple[str, str, str]],
    like: IndicatorEntry,
) -> FeedObject:
    """An object of values (kind, text, what is wrong with it), with label, end and score as `like`.

    What can be used of it is taken; the first reason why something cannot is kept.
    """
    refused = None
    entries = []
    label = like.label[:_LABEL_CHARS] if like.label else None
    for kind, text, wrong in values:
        try:
            if not wrong:
                exact_kind, value = entry(text, kind)
                entries.append(like._replace(kind=exact_kind, value=value, label=label))
        except ValueError:
            wrong = f"a value of kind {kind} that is none"
        refused = refused or wrong or None
    return FeedObject(object_id, modified, tuple(entries), refused)


def score_of(given: Any, labels: Iterable[str], settings: FeedSettings) -> int | None:
    """The feed's own score, else the highest of its labels' in the settings, else the default.

    Raises `ValueError` for a score that is no number from 0 to 100.
    """
    if given is not None:
        try:
            score = round(float(given))
        except (TypeError, OverflowError):
            raise ValueError("a score that is no number") from None
        if not 0 <= score <= 100:
            raise ValueError(f"score {given}")
        return score
    mapped = [settings.scores[label] for label in labels if label in settings.scores]
    return max(mapped, default=settings.default_score)


def is_enough(score: int | None, settings: FeedSettings) -> bool:
    return (-1 if score is None else score) >= settings.min_score or settings.min_score == 0


def end_by_age(changed: datetime, settings: FeedSettings) -> datetime | None:
    """The end of an indicator that has none of its own."""
    if settings.expire_days is None:
        return None
    try:
        return changed + timedelta(days=settings.expire_days)
    except OverflowError:
        # Behind the last year that there is: as good as none.
        return None


def feed_instant(value: Any) -> datetime | None:
    """A feed's time, in UTC where it names no zone. Raises `ValueError` for what is none."""
    if value is None:
        return None
    try:
        instant = datetime.fromisoformat(str(value))
        return instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)
    except OverflowError as error:
        raise ValueError(str(error)) from None


def _texts(value: Any) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []
