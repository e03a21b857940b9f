"""A statement that is noted in ops.audit, however it ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from api.observability.audit_log import AuditedAct, audited_act
from api.sql.runner import Refused
from infra.config.settings import Settings
from infra.errors import HeadgateError


@contextmanager
def noted_statement(
    settings: Settings, detail: Mapping[str, Any], who: str
) -> Iterator[AuditedAct]:
    """Note a statement with what came of it; the block sets `outcome` and rows where it is ok.

    Noted before it runs: a statement that kills the process is in the audit all the same.
    """
    with audited_act(settings, "statement", detail, who=who) as act:
        try:
            yield act
        except HeadgateError as error:
            act.outcome = "refused" if isinstance(error, Refused) else "failed"
            act.detail["said"] = str(error)
            raise
