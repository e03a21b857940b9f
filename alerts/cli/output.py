"""What the commands of alerts share: spans of time as people write them, when an act is taken."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from infra.config.settings import Settings
from infra.config.time_args import time_of
from infra.process.text_output import printable
from infra.runtime.job_status import at_work, read_status

if TYPE_CHECKING:
    from alerts.compiler.model_rule_files import BadModel


def since_when(text: str, now: datetime, option: str = "--since") -> datetime:
    """An instant in UTC by any of the words of `infra.config.time_args`, seen from `now`."""
    return time_of(option, text, now)


def when_taken(settings: Settings) -> str:
    """When job `alert` takes what was asked: soon, or not before a driver runs."""
    status = read_status(settings).get("alert")
    if status is not None and at_work(status, time.time()):
        return "job alert takes it within seconds"
    return "no driver runs job alert now: it waits, also its row of ops.audit, until 'headgate up'"


def tell_refused_models(refused: Sequence[BadModel]) -> int:
    """Name refused rules on stderr; 1 when there are any."""
    for bad_model in refused:
        print(printable(f"refused: {bad_model.path}: {bad_model.reason}"), file=sys.stderr)
    return 1 if refused else 0
