"""Reports that are kept: their files in <home>/reports, one set for a report and an interval."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from infra.config.settings import Settings
from infra.config.tenants import feed_of
from infra.errors import Fatal
from infra.storage.atomic_files import write_whole
from reporting.interval import Interval

if TYPE_CHECKING:
    from reporting.document.content import Report

_SUFFIXES = {"html": ".html", "pdf": ".pdf", "json": ".json", "csv": ".csv.zip"}
_DAY = 86_400


def stem_of(name: str, interval: Interval, subject: str = "", tenant: str | None = None) -> str:
    """The name of a report's files without their end: the same report is the same files.

    It says whose it is, so that `infra.config.tenants.owner_of` tells it of each file.
    """
    if not subject:
        return feed_of(f"{name}-{interval.slug}", tenant)
    # Readable, and apart from another subject that reads alike.
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", subject).strip("-")[:40]
    digest = hashlib.sha256(subject.encode()).hexdigest()[:6]
    return feed_of(f"{name}-{plain}-{digest}-{interval.slug}", tenant)


def in_form(report: Report, form: str) -> bytes:
    """A report in one of the forms of `_SUFFIXES`."""
    # Late: who looks which reports are kept needs nothing that makes pages.
    from reporting.document.exports import to_csv_zip, to_json
    from reporting.document.html import to_html
    from reporting.document.pdf import to_pdf

    if form == "json":
        return to_json(report).encode()
    if form == "csv":
        return to_csv_zip(report)
    page = to_html(report)
    return to_pdf(page) if form == "pdf" else page.encode()


def keep(settings: Settings, report: Report, forms: Sequence[str]) -> list[Path]:
    """Write a report's files, JSON always, in place of those of an earlier run; their paths."""
    stem = stem_of(report.name, report.interval, report.subject, report.tenant)
    folder = settings.reports_folder
    # All are made before the first is written: a PDF that fails leaves the old set whole.
    made = {f"{stem}{_SUFFIXES[form]}": in_form(report, form) for form in dict.fromkeys(forms)}
    made[f"{stem}.json"] = in_form(report, "json")
    made |= {f"{stem}.{name}": content for name, content in report.attachments.items()}
    return [write(folder / name, content) for name, content in made.items()]


def write(path: Path, content: bytes) -> Path:
    """Write one file, its folders too; raises `Fatal`."""
    try:
        write_whole(path, content)
    except OSError as error:
        raise Fatal(f"{path}: cannot be written ({error.strerror})") from error
    return path


def arrived_until(settings: Settings, stem: str) -> str | None:
    """Up to when data had arrived for a kept report; None: it was never made, or says nothing."""
    try:
        document = json.loads((settings.reports_folder / f"{stem}.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return str(document.get("arrived_until")) if isinstance(document, dict) else None


def forget_old(settings: Settings) -> list[Path]:
    """Delete the files that `reports.keep_days` is over for."""
    days = settings.reports.keep_days
    if not days:
        return []
    before = time.time() - days * _DAY
    gone = []
    for file in settings.reports_folder.glob("*"):
        # Only what has a report's ending: the folder may hold a person's own files.
        ours = file.name.endswith((*_SUFFIXES.values(),))
        if ours and file.is_file() and file.stat().st_mtime < before:
            file.unlink(missing_ok=True)
            gone.append(file)
    return gone
