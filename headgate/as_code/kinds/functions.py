"""Rules in Python that were let in. A person lets one in, since it runs in the driver."""

from __future__ import annotations

from pathlib import PurePosixPath

from alerts.compiler.spark_rule_files import imported
from alerts.rulepack.locations import store_folder
from headgate.as_code.kinds.kind import ConfigKind, FolderReading, Texts, files_in
from headgate.as_code.state import Objects
from infra.config.settings import Settings

_KIND = "function"
_BELOW = "functions/"
_owns = files_in(_BELOW, ".py")


def _in_force(settings: Settings) -> Objects:
    files = imported(store_folder(settings))
    return {file.stem: {"text": file.read_bytes().decode("utf-8")} for file in files}


def _to_texts(_: Settings, objects: Objects) -> Texts:
    return {f"{_BELOW}{name}.py": values["text"] for name, values in objects.items()}


def _from_texts(reading: FolderReading) -> Objects:
    return {
        PurePosixPath(path).stem: {"text": text}
        for path, text in reading.texts.items()
        if _owns(path)
    }


FUNCTION_RULES = ConfigKind(
    _KIND, _owns, _in_force, _to_texts, _from_texts, by_hand="headgate rules import FILE.py"
)
