"""Where data may lie when it does not lie where one looked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from infra.config.settings import Settings
from infra.errors import Fatal

_MARKS = ("lake", "status", "checkpoints")
"""What a home has in it once a job ran there."""


def require_home(settings: Settings, command: str) -> None:
    """Raise `Fatal` where no driver ever ran: it says where was looked, and what lies near."""
    if any((settings.home / mark).is_dir() for mark in _MARKS) or settings.lake is not None:
        return
    remedy = _remedy(settings, command, "start the jobs with 'headgate up'")
    raise Fatal(f"{settings.home}: no job ever ran with this home; {remedy}")


def require_folder(settings: Settings, command: str) -> None:
    """Raise `Fatal` where the home is no folder: for what leaves something there for the API."""
    if not settings.home.is_dir():
        remedy = _remedy(settings, command, "start the API with 'headgate api'")
        raise Fatal(f"{settings.home}: there is no such home; {remedy}")


def _remedy(settings: Settings, command: str, begin: str) -> str:
    near = next(nearby_homes(settings.home), None)
    if near is None:
        return f"{begin}, or name another folder with --home"
    return f"{near} exists: headgate --home {near} {command}"


def nearby_homes(home: Path) -> Iterator[Path]:
    """Homes below a folder, beside it, and where one is by default."""
    default = Path(".headgate")
    for folder in dict.fromkeys((home, home.parent, default)):
        # Sorted: the order in which a system lists a folder is any, and the first one is named.
        beside = sorted(path for path in _folders(folder) if path != home)
        for path in (*([folder] if folder == default else ()), *beside):
            if path != home and any((path / mark).is_dir() for mark in _MARKS[:2]):
                yield path


def _folders(folder: Path) -> Iterator[Path]:
    try:
        yield from (path for path in folder.iterdir() if path.is_dir())
    except OSError:  # it is not there, or not ours to look into
        return
