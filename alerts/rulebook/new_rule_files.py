"""New files of rules in the first folder of `alerts.rules`: never over another's, or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.config.settings import Settings
from infra.errors import Usage

RULE_FILE_ENDINGS = (".yml", ".yaml")


def folder_for_rules(settings: Settings, what: str) -> Path:
    """The first folder of `alerts.rules`, made where it is not there; `what` is to be kept in it.

    Raises `Usage` where the setting names none.
    """
    # The setting takes files as well, in which nothing can be kept.
    folders = [path for path in settings.alerts.rules if path.suffix not in RULE_FILE_ENDINGS]
    if not folders:
        raise Usage(f"alerts.rules names no folder to keep a {what} in; name one in the settings")
    folders[0].mkdir(parents=True, exist_ok=True)
    return folders[0]


@contextmanager
def new_rule_file(folder: Path, name: str, text: str) -> Iterator[Path]:
    """A file that holds `text`, for a block that tries it: it goes again where the block raises.

    Raises `Usage` where there is one of that name already.
    """
    path = folder / name
    try:
        # Never written over: somebody else's rule may have that name.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        raise Usage(f"{path} is there already; move it, or take it away") from None
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        yield path
    except BaseException:
        # A rule that was refused would be refused again with every compilation after this.
        path.unlink(missing_ok=True)
        raise
