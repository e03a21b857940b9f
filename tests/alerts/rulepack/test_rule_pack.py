"""Packs: content-hashed, kept once, switched without a restart."""

from __future__ import annotations

import multiprocessing
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from alerts.compiler.compiler import BUNDLED, compile_rules
from alerts.rulepack.rule_pack import PackStore, RulePack
from infra.errors import Fatal

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)


def bundled() -> RulePack:
    return compile_rules([BUNDLED]).pack


def test_the_same_rules_give_the_same_bytes_and_hash_in_any_process() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        other = pool.apply(_json)
    assert other == bundled().to_json()
    assert RulePack.from_json(other).hash == bundled().hash


def _json() -> bytes:
    return bundled().to_json()


def test_a_pack_survives_its_json() -> None:
    pack = bundled()
    assert RulePack.from_json(pack.to_json()) == pack


def test_a_version_changes_with_its_own_rule_only() -> None:
    everything = bundled()
    off = everything.rules[0].id
    fewer = compile_rules([BUNDLED], disabled=(off,)).pack
    assert fewer.hash != everything.hash
    before = {r.id: r.version for r in everything.rules}
    assert all(r.version == before[r.id] for r in fewer.rules)


def test_a_kept_pack_is_never_rewritten(tmp_path: Path) -> None:
    store = PackStore(tmp_path / "rules")
    name = store.put(bundled())
    path = store.folder / f"{name}.json"
    os.utime(path, (1, 1))
    assert store.put(bundled()) == name
    assert path.stat().st_mtime == 1
    assert store.get(name) == bundled()


def test_current_is_what_was_put_in_force_last(tmp_path: Path) -> None:
    store = PackStore(tmp_path)
    with pytest.raises(Fatal, match="no current rule pack"):
        store.current()
    first, second = store.put(RulePack()), store.put(bundled())
    store.set_current(first)
    store.set_current(second)
    assert PackStore(tmp_path).current() == second
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "0" * 32, "zz"])
def test_a_pack_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(Fatal):
        PackStore(tmp_path).get(name)


def test_a_pack_whose_content_was_changed_is_refused(tmp_path: Path) -> None:
    store = PackStore(tmp_path)
    name = store.put(RulePack())
    (tmp_path / f"{name}.json").write_bytes(bundled().to_json())
    with pytest.raises(Fatal, match="does not have that hash"):
        store.get(name)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"format":99}', b'{"rules":[{"id":1}]}'])
def test_what_is_no_pack_is_refused(data: bytes) -> None:
    with pytest.raises(Fatal):
        RulePack.from_json(data)


def test_switching_a_rule_off_and_on_restores_the_pack(tmp_path: Path) -> None:
    store = PackStore(tmp_path)
    rule = bundled().rules[0].id
    store.disable(rule, "ann", "noisy", NOON)
    assert store.disabled()[rule].who == "ann"
    assert store.disabled()[rule].at == NOON
    without = compile_rules([BUNDLED], disabled=store.disabled()).pack
    assert rule not in {r.id for r in without.rules}
    assert store.enable(rule)
    assert not store.enable(rule)
    assert compile_rules([BUNDLED], disabled=store.disabled()).pack.hash == bundled().hash
