"""How many alerts of one rule and tenant go to the topic in an hour; the rest lie in the table.

A storm must not take the attention that other rules need, nor that of another tenant's people. What
is held back is told by one summary alert of the rule, and tenant, which is updated while the storm
lasts.
"""

from __future__ import annotations

import msgspec

from infra.config.settings import AlertSettings

HOUR = 3600 * 1_000_000

HELD_BACK = "budget"
"""`suppressed_by` of an alert that its rule's budget held back."""


class HourlyBudget(msgspec.Struct):
    """What one rule has told of one tenant: times of its alerts in the last hour, microseconds, and
    its summary.

    `held` counts the alerts that the summary stands for, `held_at` is when the newest was.
    """

    told: list[int] = []
    summary: str | None = None
    held: int = 0
    held_at: int = 0

    def take(self, limit: int, clock: int) -> bool:
        """Whether one more alert may go out at `clock`: fewer than `limit` did in the hour before.

        The hour slides: no boundary lets twice the budget through at once.
        """
        self.told = [time for time in self.told if clock - time < HOUR]
        if len(self.told) >= limit:
            return False
        self.told.append(clock)
        return True

    def hold(self, clock: int) -> bool:
        """Count an alert that was held back; True when it begins a new storm.

        A storm ends when nothing was held back for an hour.
        """
        begins = self.summary is None or clock - self.held_at >= HOUR
        self.held = 1 if begins else self.held + 1
        self.held_at = max(clock, self.held_at)
        return begins


def limit_of(rule_id: str, settings: AlertSettings) -> int:
    """The rule's budget: alerts an hour, of each tenant."""
    return settings.budgets.get(rule_id, settings.hourly_budget)
