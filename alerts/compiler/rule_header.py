"""What a rule's file says of it for people who choose among rules; matching does without."""

from __future__ import annotations

import msgspec
from sigma.rule import SigmaRule, SigmaRuleBase

STATUSES = ("stable", "test", "experimental", "deprecated", "unsupported")
"""Sigma's, from the best proven to those that nobody should run any more."""

RETIRED = ("deprecated", "unsupported")


class RuleHeader(msgspec.Struct, frozen=True):
    """Sigma's status, and the log source as it is written; empty where the file says nothing."""

    status: str = ""
    product: str = ""
    category: str = ""
    service: str = ""


NO_HEADER = RuleHeader()


def header_of(parsed: SigmaRuleBase) -> RuleHeader:
    """Of a rule, or of a correlation, which has no log source."""
    status = parsed.status.name.lower() if parsed.status else ""
    if not isinstance(parsed, SigmaRule):
        return RuleHeader(status)
    source = parsed.logsource
    return RuleHeader(status, source.product or "", source.category or "", source.service or "")
