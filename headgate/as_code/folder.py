"""The folder of an export: which files are ours, read and written as a whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath

from headgate.as_code.kinds.kind import Texts
from infra.config.bounded_files import bounded_bytes
from infra.errors import Fatal
from infra.storage.atomic_files import write_whole

MARKER = "headgate-export.json"
"""Says that a folder is an export: of any other folder nothing is overwritten or taken."""

_CONTENT = '{"format": 1}\n'
_MOST_BYTES = 512 << 20
_ENDINGS = (".yml", ".yaml", ".csv", ".ndjson", ".jsonl", ".json", ".toml", ".py")
"""Files that somebody may take for ours: one in a wrong place is named, not passed over."""

Owns = Callable[[str], bool]


def write_folder(folder: Path, texts: Texts, owns: Owns) -> None:
    """Make a folder hold these files; files of a former export that are not among them go.

    Raises `Fatal` for a folder with anything in it that is no former export.
    """
    marker = folder / MARKER
    # What begins with a dot is git's, or the build server's.
    if folder.exists() and not marker.exists() and any(_visible(folder)):
        raise Fatal(f"{folder}: not empty, and no former export; name an empty folder")
    write_whole(marker, _CONTENT)
    for path, text in sorted(texts.items()):
        file = folder / path
        content = text.encode("utf-8")
        if not file.is_file() or file.read_bytes() != content:
            write_whole(file, content)
    for file in _files(folder):
        path = file.relative_to(folder).as_posix()
        if owns(path) and path not in texts:
            file.unlink()


def read_folder(folder: Path, owns: Owns) -> tuple[Texts, list[str]]:
    """The files that are ours, and those that look so and are not.

    Raises `Fatal` for a folder that is no export, and for a file that is not UTF-8.
    """
    marker = folder / MARKER
    if not marker.is_file():
        raise Fatal(f"{folder}: no {MARKER}; begin with 'headgate export {folder}'")
    if marker.read_text("utf-8").strip() != _CONTENT.strip():
        raise Fatal(f"{marker}: of another release; this one reads {_CONTENT.strip()}")
    texts: Texts = {}
    strange: list[str] = []
    for file in _files(folder):
        path = file.relative_to(folder).as_posix()
        if owns(path):
            texts[path] = _text(file)
        elif PurePosixPath(path).suffix.lower() in _ENDINGS and path != MARKER:
            strange.append(path)
    return texts, strange


def _text(file: Path) -> str:
    try:
        return bounded_bytes(file, _MOST_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise Fatal(f"{file}: not UTF-8 at byte {error.start}") from None


def _files(folder: Path) -> list[Path]:
    return sorted(
        file
        for file in folder.rglob("*")
        # A link may lead anywhere, and what it leads to is not what was reviewed.
        if file.is_file() and not file.is_symlink() and not _hidden(file.relative_to(folder))
    )


def _visible(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if not path.name.startswith(".")]


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
