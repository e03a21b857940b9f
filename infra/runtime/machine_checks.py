"""What a machine must have before jobs run on it: memory and disk."""

from __future__ import annotations

import shutil
from ctypes.util import find_library
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from infra.errors import Fatal

if TYPE_CHECKING:
    # Most commands look at no certificate.
    from infra.process.live_certificate import CertificateFiles

LEAST_MEMORY_GB = 4.0


LEAST_DISK_GB = 2.0
_RENEW = timedelta(days=14)
"""Before its end a certificate is asked for again."""


@dataclass(frozen=True)
class Finding:
    """One thing the doctor looked at; `remedy` is None when it is well."""

    what: str
    found: str
    remedy: str | None = None


def check_certificate(files: CertificateFiles) -> Finding:
    """Whether a server's certificate is fit, and for how long."""
    from infra.process.live_certificate import server_context

    what, now = f"{files.section} certificate", datetime.now(UTC)
    try:
        server_context(files, now)
        ends = files.certificates()[0].not_valid_after_utc
    except Fatal as error:
        return Finding(what, "not fit", str(error))
    soon = f"renew {files.certificate}; it is read anew without a restart"
    return Finding(
        what, f"good until {ends:%Y-%m-%d %H:%M} UTC", soon if ends - now < _RENEW else None
    )


def check_memory() -> Finding:
    """Whether there is memory enough for a driver and a broker."""
    # Available, not free: the system gives up its cache of files when memory is asked for.
    free = psutil.virtual_memory().available / 2**30
    short = free < LEAST_MEMORY_GB
    return Finding(
        "memory",
        f"{free:.1f} GB available",
        f"{LEAST_MEMORY_GB:.0f} GB are needed for Spark and Kafka on one machine: close something, "
        "or lower spark.driver_memory"
        if short
        else None,
    )


def check_disk(home: Path) -> Finding:
    """Whether the disk under `home` has room."""
    there = home.absolute()
    # A home that is not made yet will be on the disk of the nearest folder above.
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free / 2**30
    return Finding(
        "disk",
        f"{free:.1f} GB free under {home}",
        f"{LEAST_DISK_GB:.0f} GB are needed under {home}: free some, or set home to another disk"
        if free < LEAST_DISK_GB
        else None,
    )


def check_pdf() -> Finding:
    """Whether reports can be made as PDF; nothing else needs it."""
    if find_spec("weasyprint") is None:
        return Finding("pdf", "reports as HTML, JSON and CSV only", "pip install 'headgate[pdf]'")
    # The package is there without it, and fails when a page is laid out.
    if find_library("pango-1.0") is None:
        remedy = "install Pango; Debian: apt-get install libpango-1.0-0 libpangoft2-1.0-0"
        return Finding("pdf", "WeasyPrint finds no Pango", remedy)
    return Finding("pdf", "reports can be made as PDF")
