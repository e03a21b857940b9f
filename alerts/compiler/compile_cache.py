"""Rules as they were compiled before, by the content of their files.

One file beside the packs, of JSON under its checksum: it is decoded into the types of a rule and no
code runs, whoever wrote it. What is damaged, of another version of the compiler, or cannot be read
counts as nothing known, and is compiled again. Writers put the whole file in place at once; of two
at a time the later one stays, and the other's rules are compiled once more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from alerts.compiler.rule_header import RuleHeader
from alerts.rulepack.event_paths import event_paths
from alerts.rulepack.rule_pack import Rule
from infra.spark.session import project_root
from infra.storage.atomic_files import write_whole

MOST_KEPT_FILES = 20_000
"""Files of rules that are remembered; those of the newest compilation come first."""

_HEAD = b"headgate compiled rules 1 "
_PACKAGES = ("pysigma", "pyyaml", "google-re2", "msgspec")
_DECIDING = ("alerts/compiler", "alerts/rulepack", "alerts/domain", "alerts/mapping")
"""Folders whose code and data decide what a text compiles to."""


class CachedRule(msgspec.Struct, frozen=True):
    """A rule of a file before it is put together with others, and its own tests."""

    rule: Rule
    match: list[Any] = []
    no_match: list[Any] = []
    header: RuleHeader = RuleHeader()


class CompileCache:
    """What is known in a rule store; without a store, or before there is one, nothing is."""

    def __init__(self, store: Path | None) -> None:
        self._file = None if store is None else store / "compiled" / "rules.json"
        self._entries = _read(self._file) if self._file else {}
        self._used: dict[str, msgspec.Raw] = {}
        self._new = False

    def key_of(self, text: bytes, bundled: bool) -> str:
        """Name of a file's content; bundled rules have duties that others lack."""
        return hashlib.sha256(b"%d " % bundled + text).hexdigest()[:32]

    def rules_of(self, key: str) -> list[CachedRule] | None:
        """The rules of a file in their order; None: to be compiled."""
        raw = self._entries.get(key)
        if raw is None:
            return None
        try:
            rules = msgspec.json.decode(raw, type=list[CachedRule])
        except msgspec.MsgspecError:
            return None
        self._used[key] = raw
        return rules

    def keep(self, key: str, rules: Sequence[CachedRule]) -> None:
        """Remember a file's rules, unless JSON would make something else of them."""
        try:
            raw = msgspec.json.encode(rules)
            same = msgspec.json.decode(raw, type=list[CachedRule]) == list(rules)
        except (msgspec.MsgspecError, TypeError, ValueError):
            # Tests may hold what YAML knows and JSON does not, such as dates.
            return
        if same:
            self._used[key] = msgspec.Raw(raw)
            self._new = True

    def save(self) -> None:
        """Write what is new. Where that cannot be done, the next compilation takes longer."""
        # Looking at rules must not create a store.
        if not self._new or self._file is None or not self._file.parent.parent.is_dir():
            return
        others = {k: raw for k, raw in self._entries.items() if k not in self._used}
        kept = dict(list((self._used | others).items())[:MOST_KEPT_FILES])
        body = msgspec.json.encode({"compiler": compiler_version(), "files": kept})
        with suppress(OSError):
            write_whole(self._file, _HEAD + _sum(body) + b"\n" + body)


class _Content(msgspec.Struct):
    compiler: str
    files: dict[str, msgspec.Raw]


def _read(file: Path) -> dict[str, msgspec.Raw]:
    try:
        head, _, body = file.read_bytes().partition(b"\n")
        if head != _HEAD + _sum(body):
            return {}
        content = msgspec.json.decode(body, type=_Content)
    except (OSError, msgspec.MsgspecError):
        return {}
    return content.files if content.compiler == compiler_version() else {}


def _sum(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode("ascii")


@lru_cache(maxsize=1)
def compiler_version() -> str:
    """Changes with whatever decides what a text compiles to: our code, mapping and packages."""
    content = hashlib.sha256()
    for path in _deciding_files():
        content.update(path.name.encode() + b"\0" + path.read_bytes())
    for package in _PACKAGES:
        content.update(f"{package} {version(package)}\n".encode())
    content.update(" ".join(sorted(event_paths())).encode())
    return content.hexdigest()[:32]


def _deciding_files() -> Iterator[Path]:
    root = project_root()
    for folder in _DECIDING:
        yield from sorted(p for p in (root / folder).rglob("*") if p.suffix in (".py", ".yml"))
    yield root / "infra" / "config" / "bounded_yaml.py"
    # How an address is written, in columns and so in tests of them.
    yield root / "ingest" / "parsing" / "ocsf.py"
