"""A folder of thousands of rules that look real: the bundled ones over events, varied."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import yaml

from alerts.compiler.compiler import BUNDLED

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def write_many_rules(folder: Path, count: int, seed: int = 7) -> None:
    """`count` rules in files of their own, each with an id, a name and values of its own.

    The same seed gives the same files. They bring no tests, as public rules do not.
    """
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(seed)
    bases = list(_bases())
    for number in range(count):
        document = _varied(bases[number % len(bases)], number, chance)
        text = yaml.dump(document, Dumper=_DUMPER, sort_keys=False, width=200)
        (folder / f"rule_{number:05}.yml").write_text(text, "utf-8")


def _bases() -> Iterator[dict[str, Any]]:
    for path in sorted(BUNDLED.glob("*.yml")):
        for document in yaml.load_all(path.read_text("utf-8"), Loader=_LOADER):
            if "detection" in document and "logsource" in document:
                yield document


def _varied(base: dict[str, Any], number: int, chance: random.Random) -> dict[str, Any]:
    word = "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=7))
    return {
        **{key: value for key, value in base.items() if key != "headgate"},
        "title": f"{base['title']} ({word})",
        "name": f"{base.get('name', 'rule')}_{number}",
        "id": str(UUID(int=chance.getrandbits(128), version=4)),
        "detection": _varied_values(base["detection"], word),
    }


def _varied_values(value: Any, word: str, key: str = "") -> Any:
    """Selections with one more text in each list of texts; a condition stays."""
    if isinstance(value, dict):
        return {name: _varied_values(inner, word, str(name)) for name, inner in value.items()}
    texts = isinstance(value, list) and all(isinstance(each, str) for each in value)
    # No word is a network.
    return [*value, word] if texts and "cidr" not in key else value
