"""Versions of a pack of public rules: what each import brought, so that one can go back.

Kept beside the rule packs: a list of versions by the folder that holds the pack, and the files of
each under the hash of their content.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from alerts.rulepack.locations import store_folder
from infra.config.settings import Settings
from infra.errors import Fatal, Usage
from infra.storage.atomic_files import write_whole
from infra.storage.state_file import JsonLayout, StateFile

VERSIONS_KEPT = 10
"""Versions of one pack that are kept, the newest."""


class PackVersion(msgspec.Struct, frozen=True):
    """One import of a pack: what it is called, where it came from, who took it, when (UTC), why.

    `act`: imported, rollback, or before: the folder as the first recorded import came upon it.
    `only`: the criteria that chose its rules; empty: all. `content` names its files together, and
    `files` each of them: path below the folder to the hash of its bytes.
    """

    version: str
    source: str
    who: str
    reason: str
    taken: datetime
    act: str
    content: str
    files: dict[str, str]
    only: str = ""


def file_hash(content: bytes) -> str:
    """What names the bytes of one file: 32 hexadecimal digits of their SHA-256."""
    return hashlib.sha256(content).hexdigest()[:32]


def content_hash(files: Mapping[str, bytes]) -> str:
    """What names files together; the same files give the same 32 hexadecimal digits."""
    lines = [f"{file_hash(content)} {path}\n" for path, content in sorted(files.items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:32]


class PackVersions:
    """The versions of each pack, by its folder."""

    def __init__(self, settings: Settings) -> None:
        self._folder = store_folder(settings) / "packs"
        self._file = StateFile(
            self._folder / "versions.json",
            dict[str, list[PackVersion]],
            "put it back from a backup, or remove it: the rules stay, what was imported before is "
            "forgotten",
            layout=JsonLayout.COMPACT_SORTED,
        )

    def of(self, folder: Path) -> list[PackVersion]:
        """The versions of the pack in a folder, oldest first; raises `Fatal` for a damaged file."""
        return self.of_all([folder])[folder]

    def of_all(self, folders: Iterable[Path]) -> dict[Path, list[PackVersion]]:
        """The same of several folders, from one look at the file."""
        known = self._file.read() or {}
        return {folder: list(known.get(str(folder.absolute()), [])) for folder in folders}

    def folders(self) -> list[Path]:
        """The folders that a version was ever put into, in order."""
        return sorted(map(Path, self._file.read() or {}))

    def note(self, folder: Path, taken: PackVersion, files: Mapping[str, bytes]) -> None:
        """Keep a version with its files; the oldest beyond `VERSIONS_KEPT` go."""
        # Compressed: three thousand rules are one file of a megabyte, not three thousand.
        packed = gzip.compress(msgspec.json.encode(dict(files)), mtime=0)
        write_whole(self._files_of(taken.content), packed)
        every = self._file.read() or {}
        known = every.get(str(folder.absolute()), [])
        every[str(folder.absolute())] = [*known, taken][-VERSIONS_KEPT:]
        self._file.write(every)
        kept = {version.content for versions in every.values() for version in versions}
        for path in self._folder.glob("*.json.gz"):
            if path.name.removesuffix(".json.gz") not in kept:
                path.unlink(missing_ok=True)

    def files(self, version: PackVersion) -> dict[str, bytes]:
        """The files of a version; raises `Fatal` where they are gone or damaged."""
        path = self._files_of(version.content)
        remedy = "import that version again instead of going back to it"
        try:
            files = msgspec.json.decode(gzip.decompress(path.read_bytes()), type=dict[str, bytes])
        except FileNotFoundError:
            raise Fatal(
                f"{path}: the files of version '{version.version}' are gone; {remedy}"
            ) from None
        except (OSError, EOFError, ValueError) as error:
            raise Fatal(f"{path}: damaged ({error}); {remedy}") from None
        if content_hash(files) != version.content:
            raise Fatal(f"{path}: content does not have that hash; {remedy}")
        return files

    def _files_of(self, content: str) -> Path:
        return self._folder / f"{content}.json.gz"


def new_pack_version(
    files: Mapping[str, bytes], version: str, source: str, who: str, reason: str, act: str,
    only: str = "",
) -> PackVersion:  # fmt: skip
    """A version that is taken now; without a name it is called by its content."""
    content = content_hash(files)
    hashes = {path: file_hash(data) for path, data in files.items()}
    taken = datetime.now(UTC).replace(microsecond=0)
    name = version or content[:12]
    return PackVersion(name, source, who, reason, taken, act, content, hashes, only)


def again(version: PackVersion, who: str, reason: str) -> PackVersion:
    """A version that somebody goes back to now."""
    taken = datetime.now(UTC).replace(microsecond=0)
    return msgspec.structs.replace(version, who=who, reason=reason, taken=taken, act="rollback")


def former_version(known: list[PackVersion], folder: Path, version: str = "") -> PackVersion:
    """The version to go back to: that of a name, or the one before the last. Raises `Usage`."""
    if version:
        named = [each for each in known if each.version == version]
        if named:
            return named[-1]
        names = ", ".join(dict.fromkeys(each.version for each in known)) or "none"
        raise Usage(f"{folder}: no version '{version}' is kept; there are {names}")
    if len(known) < 2:
        raise Usage(
            f"{folder}: no version before this one is kept; 'headgate rules import DIR --into "
            f"{folder}' takes one"
        )
    return known[-2]
