"""What a kind of object has to bring, and what it gets to read its files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from headgate.as_code.state import ConfigChange, ConfigState, Objects, ObjectValues
from infra.config.bounded_yaml import yaml_document
from infra.config.settings import Settings

Texts = dict[str, str]
"""Files by their path below the folder, with `/`."""


@dataclass(frozen=True)
class ConfigProblem:
    """Why a folder cannot be applied as it is."""

    kind: str
    name: str
    sentence: str


@dataclass
class FolderReading:
    """A folder that is being read. What is wrong with it goes into `problems`."""

    settings: Settings
    texts: Texts
    in_force: ConfigState
    scratch: Path
    """Folder that goes when the plan is made."""
    prune: bool = False
    rule_ids: Mapping[str, str] = field(default_factory=dict)
    """Ids of rules by id and by name, as they would be; empty until rules are compiled."""
    problems: list[ConfigProblem] = field(default_factory=list)

    def refuse(self, kind: str, name: str, sentence: str) -> None:
        """Note a problem, and go on: a person wants to see all of them."""
        self.problems.append(ConfigProblem(kind, name, sentence))

    def document(self, kind: str, path: str) -> Any:
        """A YAML file as a value; None where it is not there, or is no YAML."""
        if path not in self.texts:
            return None
        try:
            return yaml_document(self.texts[path])
        except (yaml.YAMLError, ValueError) as error:
            self.refuse(kind, path, f"not YAML: {' '.join(str(error).split())}")
            return None

    def only_keys(self, kind: str, name: str, value: Any, known: tuple[str, ...]) -> bool:
        """Whether a value is a mapping with no key but those; else that is a problem."""
        if not isinstance(value, dict):
            self.refuse(kind, name, f"not a mapping; its keys: {', '.join(known)}")
            return False
        if unknown := sorted(str(key) for key in value if key not in known):
            self.refuse(kind, name, f"unknown key '{unknown[0]}'; it has {', '.join(known)}")
        return not unknown


@dataclass(frozen=True)
class ConfigKind:
    """One kind of object.

    `owns` says which files are its own. `put` makes one change, `put_all` all of the kind
    together; either may be called again for what was made. Neither: a person makes it, as
    `by_hand` says.
    """

    name: str
    owns: Callable[[str], bool]
    in_force: Callable[[Settings], Objects]
    to_texts: Callable[[Settings, Objects], Texts]
    from_texts: Callable[[FolderReading], Objects]
    put: Callable[[Settings, ConfigChange, str], None] | None = None
    put_all: Callable[[Settings, Sequence[ConfigChange], str], None] | None = None
    by_hand: str = ""
    described: Callable[[ObjectValues], Any] = lambda values: values
    stage: Callable[[FolderReading, ConfigChange, Path], None] | None = None
    """Keeps in a folder of the home what `put` needs besides the change."""

    @property
    def is_by_hand(self) -> bool:
        """Whether only a person can change it."""
        return self.put is None and self.put_all is None


def files_in(folder: str, ending: str) -> Callable[[str], bool]:
    """Owns the files right below a folder (`queries/`) that end so (`.yml`)."""

    def owns(path: str) -> bool:
        parts = PurePosixPath(path)
        return len(parts.parts) == 2 and path.startswith(folder) and parts.suffix == ending

    return owns


def yaml_text(value: Any) -> str:
    """A value as YAML that is the same each time and reads well in a diff."""
    text: str = yaml.safe_dump(value, sort_keys=True, allow_unicode=True, width=10_000)
    return text
