"""What the newest check of the ledger found, for /metrics."""

from __future__ import annotations

from datetime import UTC, datetime

from prometheus_client import CollectorRegistry

from api.observability.file_gauges import FileGauges
from infra.config.settings import Settings
from infra.errors import Fatal
from ingest.completeness.ledger_state import LedgerCheckState, ledger_check_folder

_DOCS = {
    "passed": "1 when the newest check of the ledger found nothing missing, doubled or expiring.",
    "age_seconds": "Since the newest check of the ledger began.",
    "missing": "Messages that were read and are not in bronze.",
    "repeated": "Rows that stand there again.",
    "unaccounted": "Records that no row names.",
    "expiring": "Unread messages that the broker soon deletes.",
    "lost": "Gaps that nobody has accepted.",
}


class LedgerCheck(FileGauges):
    """Gauges from the file that a check leaves.

    Before the first check they have no values: 0 would say that it failed. Nor have they where the
    file cannot be read, of which the check itself says why.
    """

    prefix, docs = "headgate_ledger", _DOCS

    def __init__(self, registry: CollectorRegistry, settings: Settings) -> None:
        self._folder = ledger_check_folder(settings)
        super().__init__(registry)

    def values(self) -> dict[str, float]:
        """Of the newest check."""
        try:
            return _gauges(LedgerCheckState.load(self._folder))
        except (Fatal, OSError, ValueError, TypeError):  # no file must cost all other metrics
            return {}


def _gauges(state: LedgerCheckState) -> dict[str, float]:
    if state.at is None:
        return {}
    age = datetime.now(UTC) - datetime.fromisoformat(state.at)
    counts = ("missing", "repeated", "unaccounted", "expiring", "lost")
    results = {name: float(getattr(state, name)) for name in counts}
    return results | {"passed": float(state.passed), "age_seconds": age.total_seconds()}
