"""Rules of one's own and imported packs: the files below the folders of `alerts.rules`."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from alerts.compiler.rule_files import placeholder_files, rule_files
from alerts.rulebook.rule_packs import pack_folders
from headgate.as_code.kinds.kind import ConfigKind, FolderReading, Texts
from headgate.as_code.state import ConfigChange, Objects, ObjectValues
from infra.config.bounded_yaml import yaml_documents
from infra.config.settings import Settings
from infra.errors import Fatal
from infra.storage.atomic_files import write_whole

_KIND = "rule"
_BELOW = "rules/"
_ENDINGS = (".yml", ".yaml")


def rule_path(settings: Settings, name: str) -> Path | None:
    """The file that a rule's name stands for; None where `alerts.rules` names no such folder."""
    pack, _, rest = name.partition("/")
    root = pack_folders(settings).get(pack)
    # A pack that is a single file has nothing below it.
    if root is None or (not rest) != (root.suffix in _ENDINGS):
        return None
    return root / rest if rest else root


def rule_name(roots: dict[str, Path], path: Path) -> str | None:
    """The name of a file that lies below one of the roots; None for a bundled rule."""
    for pack, root in roots.items():
        if path == root:
            return pack
        if path.is_relative_to(root):
            return f"{pack}/{path.relative_to(root).as_posix()}"
    return None


def _in_force(settings: Settings) -> Objects:
    objects: Objects = {}
    for pack, root in pack_folders(settings).items():
        if root.is_file() and root.suffix in _ENDINGS:
            objects[pack] = {"text": _text(root)}
        elif root.is_dir():
            for path in [*rule_files(root), *placeholder_files([root])]:
                objects[f"{pack}/{path.relative_to(root).as_posix()}"] = {"text": _text(path)}
    return objects


def _text(path: Path) -> str:
    try:
        # Bytes, since `read_text` would make other line ends of those that the file has.
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise Fatal(f"{path}: not UTF-8 at byte {error.start}; put it right first") from None


def _owns(path: str) -> bool:
    return path.startswith(_BELOW) and PurePosixPath(path).suffix in _ENDINGS


def _to_texts(_: Settings, objects: Objects) -> Texts:
    return {_BELOW + name: values["text"] for name, values in objects.items()}


def _from_texts(reading: FolderReading) -> Objects:
    objects: Objects = {}
    for path in filter(_owns, reading.texts):
        name = path.removeprefix(_BELOW)
        if rule_path(reading.settings, name) is None:
            known = ", ".join(pack_folders(reading.settings)) or "none"
            reading.refuse(
                _KIND, name, f"alerts.rules names no such folder; add it there (it has: {known})"
            )
            continue
        objects[name] = {"text": reading.texts[path]}
    return objects


def _put(settings: Settings, change: ConfigChange, _: str) -> None:
    path = rule_path(settings, change.name)
    if path is None:
        raise Fatal(f"{change.name}: alerts.rules no longer names its folder; put it back first")
    if change.after is None:
        path.unlink(missing_ok=True)
    else:
        write_whole(path, change.after["text"])


def _described(values: ObjectValues) -> Any:
    """The keys of a rule; of a file with several rules each with its place, from 1."""
    try:
        documents = list(yaml_documents(values["text"]))
    except (yaml.YAMLError, ValueError):
        return values
    if len(documents) == 1 and isinstance(documents[0], dict):
        return documents[0]
    return {str(number): document for number, document in enumerate(documents, 1)}


RULES = ConfigKind(_KIND, _owns, _in_force, _to_texts, _from_texts, _put, described=_described)
