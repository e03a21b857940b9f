"""YAML from outside, within bounds that are checked before anything is made of it.

A few lines of aliases, each of ten of the one before, stand for billions of values; merge keys
make copies of them while they are read, and whoever walks the document makes them later.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

MAX_YAML_BYTES = 4 << 20
MAX_YAML_VALUES = 200_000
"""Values of one document, each as often as aliases name it."""
MAX_YAML_DEPTH = 60


def yaml_documents(text: str, loader: Any = yaml.SafeLoader) -> Iterator[Any]:
    """The documents of a text, one after the other. Raises `yaml.YAMLError`, also beyond bounds."""
    if len(text) > MAX_YAML_BYTES:
        raise yaml.YAMLError(f"it has {len(text)} characters; at most {MAX_YAML_BYTES} are read")
    reader = loader(text)
    try:
        while reader.check_node():
            # Nodes share what aliases name; only values made of them would be copies.
            node = reader.get_node()
            _size_of(node, 1, {})
            yield reader.construct_document(node)
    except RecursionError:
        raise yaml.YAMLError(f"nested deeper than {MAX_YAML_DEPTH} levels") from None
    finally:
        reader.dispose()


def yaml_document(text: str, loader: Any = yaml.SafeLoader) -> Any:
    """The one document of a text, None for an empty one. Raises `yaml.YAMLError`."""
    documents = list(yaml_documents(text, loader))
    if len(documents) > 1:
        raise yaml.YAMLError(f"one document is expected; this has {len(documents)}")
    return documents[0] if documents else None


_OPEN = -1
"""In place of the size of a node that is being measured: one that holds itself."""


def _size_of(node: yaml.Node, depth: int, sizes: dict[int, int]) -> int:
    """How many values a node stands for; each node is looked at once."""
    if (earlier := sizes.get(id(node))) is not None:
        if earlier == _OPEN:
            raise yaml.YAMLError("a value that holds itself, by an alias")
        return earlier
    if depth > MAX_YAML_DEPTH:
        raise yaml.YAMLError(f"nested deeper than {MAX_YAML_DEPTH} levels")
    # Marked before its inside is looked at: who comes back here went round in a circle.
    sizes[id(node)] = _OPEN
    size = 1
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            size += _size_of(key, depth + 1, sizes) + _size_of(value, depth + 1, sizes)
    elif isinstance(node, yaml.SequenceNode):
        size += sum(_size_of(value, depth + 1, sizes) for value in node.value)
    if size > MAX_YAML_VALUES:
        raise yaml.YAMLError(
            f"it stands for more than {MAX_YAML_VALUES} values, aliases counted as often as they "
            "are used"
        )
    sizes[id(node)] = size
    return size
