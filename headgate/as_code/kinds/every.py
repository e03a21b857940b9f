"""The kinds there are, in the order in which they are applied."""

from __future__ import annotations

from headgate.as_code.kinds.indicators import INDICATORS
from headgate.as_code.kinds.kind import ConfigKind
from headgate.as_code.kinds.rules import RULES
from headgate.as_code.kinds.rules_off import RULES_OFF
from headgate.as_code.kinds.suppressions import SUPPRESSIONS

COMPILED = (RULES.name, INDICATORS.name, RULES_OFF.name)
"""What comes into force at once, when the rules are compiled after all of it is there."""

KINDS: tuple[ConfigKind, ...] = (RULES, INDICATORS, RULES_OFF, SUPPRESSIONS)
"""Indicators are read after rules and before what names rules, which are compiled then."""


def kind_named(name: str) -> ConfigKind:
    """The kind of that name."""
    return next(kind for kind in KINDS if kind.name == name)
