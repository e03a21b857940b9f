"""rsigma (https://github.com/timescale/rsigma) beside our matcher: its evaluation alone, in Rust.

The rules are those our engine runs, written back as Sigma over the columns of silver.event, and
the events are the rows of the same batches as JSON. Both must find the same pairs of rule and
event before a rate is told. rsigma has its events parsed beforehand and makes no findings.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from alerts.matching.matcher import Matcher
from alerts.rulepack.predicate import All, Either, Node, Not, Test, paths_of
from alerts.rulepack.rule_pack import RulePack

HERE = Path(__file__).parent / "rsigma"
TARGET = Path(__file__).parents[1] / "build" / "rsigma"
PROGRAM = TARGET / "release" / "headgate-bench-rsigma"
VERSION = "0.23.0"

_MODIFIERS = {
    "eq": "",
    "contains": "|contains",
    "startswith": "|startswith",
    "endswith": "|endswith",
    "re": "|re",
    "cidr": "|cidr",
    "exists": "|exists",
    "number": "",
    **{op: f"|{op}" for op in ("lt", "lte", "gt", "gte")},
    "ref": "|fieldref",
}
_TEXT = frozenset({"eq", "contains", "startswith", "endswith"})


class Beside(NamedTuple):
    """Events a CPU second of rsigma in its fastest way, which that is, and the same of ours."""

    rates: list[float]
    way: str
    ours: list[float]
    pairs: int


class Unsayable(Exception):
    """A test that has no form in Sigma over columns."""


def build() -> str:
    """Builds the program; why it cannot be, or nothing."""
    if shutil.which("cargo") is None:
        return "cargo is not on this machine"
    made = subprocess.run(
        ["cargo", "build", "--quiet", "--release", "--locked", "--target-dir", str(TARGET)],
        cwd=HERE, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return "" if made.returncode == 0 else f"cargo could not build it: {made.stderr[-300:]}"


def beside(pack: RulePack, batches: Sequence[pa.RecordBatch], folder: Path, repeat: int) -> Beside:
    """Both over the same events; raises `ValueError` where their pairs differ."""
    documents = [sigma_of(rule.id, rule.predicate) for rule in pack.rules]
    text = "\n---\n".join(json.dumps(document) for document in documents)
    (folder / "rules.yml").write_text(text, "utf-8")
    columns = sorted({path.partition(".")[0] for r in pack.rules for path in paths_of(r.predicate)})
    uids: list[str] = []
    with (folder / "events.jsonl").open("w", encoding="utf-8") as file:
        for batch in batches:
            uids += batch.column("event_uid").to_pylist()
            for row in batch.select(columns).to_pylist():
                file.write(json.dumps(_bare(row)) + "\n")
    names = ("rules.yml", "events.jsonl", "pairs.txt")
    command = [str(PROGRAM), *(str(folder / name) for name in names), str(repeat)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    ways = [json.loads(line) for line in printed.splitlines()]
    lines = (folder / "pairs.txt").read_text("utf-8").splitlines()
    theirs = {(rule, uids[int(number)]) for number, rule in map(str.split, lines)}
    matcher = Matcher(pack)
    rows = (row for batch in batches for row in matcher.match(batch).to_pylist())
    ours = {(row["rule_id"], row["event_uid"]) for row in rows}
    if ours != theirs or any(way["pairs"] != len(ours) for way in ways):
        raise ValueError(f"ours and rsigma's pairs differ: {sorted(ours ^ theirs)[:5]}")
    rates = []
    for _ in range(repeat):
        began = time.process_time()
        for batch in batches:
            matcher.match(batch)
        rates.append(len(uids) / (time.process_time() - began))
    fastest = min(ways, key=lambda way: min(way["seconds"]))
    theirs_rates = [len(uids) / seconds for seconds in fastest["seconds"]]
    return Beside(theirs_rates, fastest["way"], rates, len(ours))


def sayable(pack: RulePack) -> RulePack:
    """The rules of a pack that can be written as Sigma over columns."""
    kept = []
    for rule in pack.rules:
        try:
            sigma_of(rule.id, rule.predicate)
        except Unsayable:
            continue
        kept.append(rule)
    return RulePack(rules=tuple(kept))


def sigma_of(rule_id: str, node: Node) -> dict[str, Any]:
    """A tree as a Sigma rule; raises `Unsayable`."""
    selections: dict[str, Any] = {}
    condition = _condition(node, selections)
    return {
        "title": rule_id,
        "id": rule_id,
        "logsource": {"category": "process_creation", "product": "windows"},
        "detection": selections | {"condition": condition},
        "level": "high",
    }


def _condition(node: Node, selections: dict[str, Any]) -> str:
    if isinstance(node, Not):
        return f"not {_condition(node.of, selections)}"
    if isinstance(node, All):
        return f"({' and '.join(_condition(part, selections) for part in node.of)})"
    if isinstance(node, Either):
        return f"({' or '.join(_of_either(node, selections))})"
    return _selection(_key(node), [_value(node)], selections)


def _of_either(node: Either, selections: dict[str, Any]) -> Iterator[str]:
    """Tests that differ in their value alone are one selection, as rule authors write them."""
    together: dict[str, list[Any]] = {}
    for part in node.of:
        if isinstance(part, Test):
            together.setdefault(_key(part), []).append(_value(part))
        else:
            yield _condition(part, selections)
    for key, values in together.items():
        yield _selection(key, values, selections)


def _selection(key: str, values: list[Any], selections: dict[str, Any]) -> str:
    name = f"s{len(selections)}"
    selections[name] = {key: values if len(values) > 1 else values[0]}
    return name


def _key(test: Test) -> str:
    if test.op == "like":
        return f"{test.field}{'|cased' if test.cased else ''}"
    if test.op not in _MODIFIERS:
        raise Unsayable(test.op)
    cased = "|cased" if test.cased and test.op in _TEXT else ""
    return f"{test.field}{_MODIFIERS[test.op]}{cased}"


def _value(test: Test) -> Any:
    if test.op == "like":
        return "".join(_escaped(text) if kind == "text" else kind for kind, text in test.parts)
    return _escaped(str(test.value)) if test.op in _TEXT else test.value


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("*", "\\*").replace("?", "\\?")


def _bare(value: Any) -> Any:
    """Without what is missing: to Sigma a null is a value."""
    if isinstance(value, dict):
        return {key: _bare(of) for key, of in value.items() if of is not None}
    if isinstance(value, list):
        return [_bare(of) for of in value if of is not None]
    return value.isoformat() if isinstance(value, datetime) else value
