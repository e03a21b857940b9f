"""Reports that were made: the files in <home>/reports."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from infra.config.settings import Settings

FORMS = {
    ".csv.zip": ("csv", "application/zip"),
    ".html": ("html", "text/html; charset=utf-8"),
    ".json": ("json", "application/json"),
    ".pdf": ("pdf", "application/pdf"),
}
"""The ending of a report's file: its form, and its media type."""


@dataclass(frozen=True)
class StoredReport:
    """One file. `stem`: what the files of one report in several forms have in common."""

    name: str
    stem: str
    form: str
    media_type: str
    size: int
    made_at: datetime
    path: Path


def stored_reports(settings: Settings) -> list[StoredReport]:
    """Every file of a report, the newest first."""
    files = []
    for path in (settings.home.absolute() / "reports").glob("*"):
        ending = next((ending for ending in FORMS if path.name.endswith(ending)), None)
        if ending is None or path.name.startswith("."):
            continue
        try:
            about = path.stat()
        except FileNotFoundError:  # its time was over just now
            continue
        form, media_type = FORMS[ending]
        made_at = datetime.fromtimestamp(about.st_mtime, UTC)
        stem = path.name.removesuffix(ending)
        files.append(StoredReport(path.name, stem, form, media_type, about.st_size, made_at, path))
    return sorted(files, key=lambda file: (file.made_at, file.name), reverse=True)
