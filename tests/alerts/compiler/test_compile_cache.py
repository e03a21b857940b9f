"""Rules that were compiled before: the same as compiled anew, whatever became of the file."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from alerts.compiler.compile_cache import CompileCache, _deciding_files
from alerts.compiler.compiler import BUNDLED, compile_rules
from infra.spark.session import project_root
from tests.alerts.many_rules import write_many_rules

RULE = """\
title: Somebody logs in
name: login
id: 22222222-0000-4000-8000-000000000001
logsource: {product: ocsf, category: authentication}
detection:
  who: {user.name: %s}
  condition: who
"""
FILTER = """\
title: But not this one
id: 22222222-0000-4000-8000-000000000002
logsource: {product: ocsf, category: authentication}
filter:
  rules: [login]
  noise: {user.name: backup}
  condition: not noise
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A rule store that is there, as after the first `headgate rules enable`."""
    folder = tmp_path / "_rules"
    folder.mkdir()
    return folder


def file_of(store: Path) -> Path:
    return store / "compiled" / "rules.json"


def test_what_was_compiled_before_is_what_is_compiled_anew(tmp_path: Path, store: Path) -> None:
    write_many_rules(tmp_path / "more", 30)
    folders = [BUNDLED, tmp_path / "more"]
    anew = compile_rules(folders)
    for _ in range(2):
        assert compile_rules(folders, store=store) == anew
    off = {next(iter(anew.sources))}
    known = compile_rules(folders, store=store, disabled=off, levels=("low",))
    assert known == compile_rules(folders, disabled=off, levels=("low",))


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content.replace(b"root", b"tool"),
        lambda content: b"\x80\x04K\x01." + content,
    ],
)
def test_a_damaged_file_is_compiled_again(
    tmp_path: Path, store: Path, damage: Callable[[bytes], bytes]
) -> None:
    (tmp_path / "rule.yml").write_text(RULE % "root", "utf-8")
    anew = compile_rules([tmp_path / "rule.yml"], store=store)
    whole = file_of(store).read_bytes()
    file_of(store).write_bytes(damage(whole))
    assert compile_rules([tmp_path / "rule.yml"], store=store) == anew
    assert file_of(store).read_bytes() == whole


def test_a_changed_text_or_a_new_filter_counts_at_once(tmp_path: Path, store: Path) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    for user in ("root", "admin"):
        (rules / "rule.yml").write_text(RULE % user, "utf-8")
        (rule,) = compile_rules([rules], store=store).pack.rules
        assert user in str(rule.predicate)
    (rules / "filter.yml").write_text(FILTER, "utf-8")
    filtered = compile_rules([rules], store=store)
    assert "backup" in str(filtered.pack.rules[0].predicate)
    assert filtered == compile_rules([rules])
    (rules / "filter.yml").unlink()
    assert compile_rules([rules], store=store).pack.rules == (rule,)


def test_what_depends_on_more_than_its_text_is_not_remembered(tmp_path: Path, store: Path) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    text = RULE.replace("user.name: %s", "user.name|expand: '%who%'")
    (rules / "rule.yml").write_text(text, "utf-8")
    for user in ("root", "admin"):
        (rules / "placeholders.yml").write_text(f"who: [{user}]\n", "utf-8")
        assert user in str(compile_rules([rules], store=store).pack.rules[0].predicate)
    (rules / "rule.yml").write_text("title: broken\n", "utf-8")
    refused = compile_rules([rules], store=store).refused
    assert refused == compile_rules([rules], store=store).refused != ()
    assert not file_of(store).exists()


def test_looking_makes_no_store(tmp_path: Path) -> None:
    (tmp_path / "rule.yml").write_text(RULE % "root", "utf-8")
    compile_rules([tmp_path / "rule.yml"], store=tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_of_two_writers_at_a_time_one_stays_and_is_whole(tmp_path: Path, store: Path) -> None:
    (tmp_path / "rule.yml").write_text(RULE % "root", "utf-8")
    compile_rules([tmp_path / "rule.yml"], store=store)
    key = CompileCache(store).key_of((tmp_path / "rule.yml").read_bytes(), False)
    (rule,) = CompileCache(store).rules_of(key) or []
    first, second = CompileCache(store), CompileCache(store)
    first.keep("a", [rule])
    second.keep("b", [rule])
    first.save()
    second.save()
    after = CompileCache(store)
    assert after.rules_of("b") == after.rules_of(key) == [rule]
    assert after.rules_of("a") is None


def test_code_that_decides_what_a_text_compiles_to_is_in_the_version() -> None:
    root = project_root()
    tree = ast.parse((root / "alerts/compiler/sigma_to_predicate.py").read_text("utf-8"))
    used = [
        root / f"{node.module.replace('.', '/')}.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ingest.")
    ]
    assert used
    assert {*used} <= {*_deciding_files()}
