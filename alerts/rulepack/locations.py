"""Where rule packs of a home lie."""

from __future__ import annotations

from pathlib import Path

from infra.config.settings import Settings


def store_folder(settings: Settings) -> Path:
    """Where packs and switches lie: beside the tables, so that workers reach them."""
    return settings.lake_side / "_rules"
