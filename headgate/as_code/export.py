"""What is in force, as files."""

from __future__ import annotations

from pathlib import Path

from headgate.as_code.folder import write_folder
from headgate.as_code.kinds.every import CONFIG_KINDS
from headgate.as_code.kinds.kind import Texts
from headgate.as_code.plan import owned
from infra.config.settings import Settings


def export_folder(settings: Settings, folder: Path) -> dict[str, int]:
    """Write all that is in force into a folder; how many objects of each kind there are.

    Raises `Fatal` for a folder that is neither empty nor a former export.
    """
    texts: Texts = {}
    counts: dict[str, int] = {}
    for kind in CONFIG_KINDS:
        objects = kind.in_force(settings)
        counts[kind.name] = len(objects)
        texts |= kind.to_texts(settings, objects)
    write_folder(folder, texts, owned)
    return counts
