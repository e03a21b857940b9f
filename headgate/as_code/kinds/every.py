"""The kinds there are, in the order in which they are applied."""

from __future__ import annotations

from headgate.as_code.kinds.assets import ASSET_LISTS
from headgate.as_code.kinds.functions import FUNCTION_RULES
from headgate.as_code.kinds.indicators import INDICATOR_LISTS
from headgate.as_code.kinds.kind import ConfigKind
from headgate.as_code.kinds.queries import QUERIES
from headgate.as_code.kinds.rules import RULES
from headgate.as_code.kinds.rules_off import RULES_OFF
from headgate.as_code.kinds.settings_file import SETTINGS, WEBHOOKS
from headgate.as_code.kinds.suppressions import SUPPRESSIONS

COMPILED = (RULES.name, INDICATOR_LISTS.name, RULES_OFF.name)
"""What comes into force at once, when the rules are compiled after all of it is there."""

CONFIG_KINDS: tuple[ConfigKind, ...] = (
    RULES, INDICATOR_LISTS, RULES_OFF, QUERIES, ASSET_LISTS, SUPPRESSIONS,
    FUNCTION_RULES, WEBHOOKS, SETTINGS,
)  # fmt: skip
"""Indicators are read after rules and before what names rules, which are compiled then."""


def kind_named(name: str) -> ConfigKind:
    """The kind of that name."""
    return next(kind for kind in CONFIG_KINDS if kind.name == name)
