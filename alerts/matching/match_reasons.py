"""Why an event satisfies a rule: the tests that held, with the values they held for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from alerts.domain.finding import FIELD_CHARS, single_line
from alerts.rulepack.field_mapping import mapping
from alerts.rulepack.predicate import (
    All,
    Either,
    Node,
    Not,
    Test,
    at,
    holds,
    leaf,
    listed_in,
    present,
    text_of,
)
from infra.config.bounded_yaml import yaml_document
from ingest.parsing.ocsf import ACTION, DISPOSITION, KINDS, SEVERITY, STATUS

MOST_VALUES = 5

_WORDS = {
    "eq": "is",
    "like": "is like",
    "re": "matches",
    "cidr": "is in",
    "number": "=",
    "lt": "<",
    "lte": "<=",
    "gt": ">",
    "gte": ">=",
    "ne": "<>",
    "bool": "is",
    "startswith": "starts with",
    "endswith": "ends with",
    "ref": "is the same as",
    "ref_contains": "contains",
    "ref_startswith": "starts with",
    "ref_endswith": "ends with",
}

_NUMBERS: Mapping[str, Mapping[int, str]] = {
    "class_uid": {uid: kind.name for uid, kind in KINDS.items()},
    "status_id": STATUS,
    "severity_id": SEVERITY,
    "action_id": ACTION,
    "disposition_id": DISPOSITION,
}
"""What numbers of OCSF mean, by field: nobody should have to look them up."""


def reasons(node: Node, event: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What of a tree made an event match, each as field, test and the values that passed it.

    Of alternatives only those that hold. What must not be is told as `absent`. `more`: values
    beyond the first `MOST_VALUES`.
    Empty when the tree does not hold.
    """
    return list(_reasons(node, event)) if holds(node, event) else []


def _reasons(node: Node, event: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    node = _once(node)
    if isinstance(node, Not):
        yield {"field": "", "test": reason_text(node), "values": [], "more": 0, "absent": True}
    elif isinstance(node, Test):
        values = [single_line(text_of(v), FIELD_CHARS) for v in _passing(node, event)]
        yield {
            "field": node.field,
            "test": reason_text(node),
            "values": values[:MOST_VALUES],
            "more": max(0, len(values) - MOST_VALUES),
            "absent": False,
        }
    else:
        for part in node.of:
            # Of an `and` all parts hold already; of an `or` only some.
            if isinstance(node, All) or holds(part, event):
                yield from _reasons(part, event)


def _once(node: Node) -> Node:
    """What is denied twice as it is: so the compiler marks what no event is to be sought by."""
    while isinstance(node, Not) and isinstance(node.of, Not):
        node = node.of.of
    return node


def _passing(test: Test, event: Mapping[str, Any]) -> list[Any]:
    """The values of a field for which its test holds."""
    values = present(at(event, test.field))
    if test.op == "listed":
        hit = listed_in(test).hit(values, at(event, "time"))
        return [] if hit is None else [hit.value]
    if test.op == "exists" or test.op.startswith("ref"):
        return values
    passes = leaf(test)
    return [value for value in values if passes(value)]


def reason_text(node: Node) -> str:
    """A tree as a person reads it: `user.name is 'root' and not (src_ip is in '10.0.0.0/8')`."""
    node = _once(node)
    if isinstance(node, Test):
        return _test(node)
    if isinstance(node, Not):
        return f"not ({reason_text(node.of)})"
    joined = " and " if isinstance(node, All) else " or "
    parts = map(_once, node.of)
    return joined.join(
        f"({reason_text(p)})" if isinstance(p, All | Either) else reason_text(p) for p in parts
    )


def _test(test: Test) -> str:
    if test.op == "exists":
        return f"{test.field} {'exists' if test.value else 'is missing'}"
    if test.op == "listed":
        return f"{test.field} has one of list '{dict(test.parts)['list']}'"
    wanted = repr(test.value)
    if test.op == "like":
        wanted = repr("".join(part if kind == "text" else kind for kind, part in test.parts))
    elif test.op.startswith("ref"):
        wanted = str(test.value)
    cased = " (case matters)" if test.cased else ""
    meant = ""
    if isinstance(test.value, int | float) and not isinstance(test.value, bool):
        name = _NUMBERS.get(test.field, {}).get(test.value)  # type: ignore[arg-type]  # 2.0 is 2
        meant = f" ({name})" if name else ""
    return f"{test.field} {_WORDS.get(test.op, test.op)} {wanted}{meant}{cased}"


def rule_text(folders: tuple[Path, ...], rule_id: str) -> tuple[Path, str] | None:
    """The file that holds a rule, and its document in it as it was written; None: not found."""
    files = (path for folder in folders for path in sorted(folder.rglob("*.y*ml")))
    for path in files:
        try:
            whole = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        # A look at the text first: parsing thousands of files to find one would take minutes.
        if rule_id not in whole:
            continue
        for document in whole.split("\n---"):
            if any(
                line.split("#")[0].strip() == f"id: {rule_id}" for line in document.splitlines()
            ):
                return path, document.strip("\n")
    return None


def selections(folders: tuple[Path, ...], document: str) -> dict[str, Node]:
    """The named selections of a Sigma rule as trees. Raises what pySigma or `predicate_of` does."""
    # Late: most who tell why a rule held do not ask for its selections.
    from sigma.rule import SigmaDetections, SigmaRule, SigmaYAMLLoader

    from alerts.compiler.rule_files import placeholder_files, read_placeholders, with_known_names
    from alerts.compiler.sigma_to_predicate import Meaning, predicate_of

    loaded = yaml_document(document, SigmaYAMLLoader)
    # pySigma does not know our own keys.
    loaded.pop("headgate", None)
    parsed = SigmaRule.from_dict(with_known_names(loaded))
    named = parsed.logsource
    meaning = Meaning(
        mapping().logsource(named.category, named.product, named.service),
        mapping().keywords,
        {
            name: v
            for path in placeholder_files(folders)
            for name, v in read_placeholders(path).items()
        },
    )
    every = parsed.detection.detections
    return {
        name: predicate_of(SigmaDetections(detections=every, condition=[name]), meaning)
        for name in every
    }
