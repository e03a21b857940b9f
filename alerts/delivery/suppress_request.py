"""What a suppression may be: checks that the command and the API share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from alerts.lifecycle.suppression import ANY
from infra.config.settings import Settings
from infra.errors import NoSuch, Usage

LONGEST_SUPPRESSION = timedelta(days=366)


@dataclass(frozen=True)
class SuppressionWish:
    """What is to be silenced; all that are given must fit. Patterns know `*` and `?`."""

    rule: str | None = None
    entity: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)

    def require_narrow(self) -> None:
        """Raises `Usage` where it would silence everything."""
        patterns = (self.rule, self.entity, *self.fields.values())
        # `**` and `*?` mean everything as well.
        if all(not pattern or not pattern.strip("*?") for pattern in patterns):
            raise Usage("this would silence everything: give a rule, an entity or a field")

    @property
    def rule_pattern(self) -> str:
        """The rule as gold.alert_action has it."""
        return self.rule or ANY


def require_end(end: datetime, now: datetime) -> None:
    """Raises `Usage` unless it ends in time to come, within a year."""
    if end <= now:
        raise Usage(f"it would be over already ({end.isoformat()}); give a time to come")
    if end - now > LONGEST_SUPPRESSION:
        raise Usage("longer than a year; a rule that is never wanted: headgate rules disable")


def rule_pattern(settings: Settings, given: str | None) -> str | None:
    """The id of a rule that is named by its short name or title; a pattern as it is.

    Raises `Usage` where there is no such rule.
    """
    # Late: ending one compiles no rules.
    from alerts.rulebook.rule_switch import id_of_alerts

    if not given or "*" in given or "?" in given:
        return given
    try:
        return id_of_alerts(settings, given)
    except NoSuch as error:
        # What is wrong is the wish: to `NoSuch` the API answers that its address is.
        raise Usage(str(error)) from error
