"""A rule that asks too much of who compiles it is refused alone, in one sentence, at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from alerts.compiler.compiler import compile_rules
from alerts.compiler.rule_files import MAX_FILE_BYTES

RULE = """title: t
id: 11111111-1111-1111-1111-111111111111
level: high
logsource: {category: process_creation, product: windows}
detection:
  sel: {CommandLine|contains: 'x'}
  condition: sel
"""
QUIET = RULE.replace("1111-1111", "2222-2222")
LONG = "---\n".join(
    [
        RULE.replace("level: high", "level: high\nname: base"),
        """title: c
id: 33333333-1111-1111-1111-111111111111
level: high
correlation: {type: event_count, rules: [base], group-by: [User], timespan: SPAN,
  condition: {gte: 2}}
""",
    ]
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (RULE.replace("sel\n", " and ".join(["sel"] * 20_000) + "\n"), "its condition has"),
        (
            RULE.replace(
                "  sel:", "".join(f"  s{i}: {{CommandLine: a{i}}}\n" for i in range(600)) + "  sel:"
            ),
            "selections, more than",
        ),
        (RULE.replace("'x'", str([f"v{i}" for i in range(20_000)])), "20001 values"),
        (RULE.replace("sel: {", "sel: {? [a, b] : c, "), "not YAML"),
        (RULE.replace("'x'", "9" * 5_000), "not YAML"),
        (
            "\n".join(
                ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40))]
            )
            + "\n"
            + RULE,
            "alias",
        ),
        (LONG.replace("SPAN", "99999999999999999999y"), "timespan"),
        ("#" * (MAX_FILE_BYTES + 1), "larger than"),
    ],
    ids=["condition", "selections", "values", "key", "digits", "aliases", "span", "file"],
)
def test_one_rule_that_is_too_much_costs_no_other(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(text)
    (tmp_path / "b.yml").write_text(QUIET)
    compiled = compile_rules([tmp_path])
    assert "11112222-2222-2222-2222-111111111111" in compiled.sources
    assert any(reason in refused.reason for refused in compiled.refused), compiled.refused


def test_a_large_file_of_placeholders_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b.yml").write_text(QUIET)
    with (tmp_path / "placeholders.yml").open("wb") as file:
        file.truncate(8 << 30)
    compiled = compile_rules([tmp_path])
    assert len(compiled.sources) == 1
    assert "larger than" in compiled.refused[0].reason


def test_a_refused_expression_is_told_and_not_printed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yml").write_text(
        RULE.replace("|contains: 'x'", "|re: '((a{1000}){1000}){1000}'")
    )
    assert "repetition" in compile_rules([tmp_path]).refused[0].reason
    assert capfd.readouterr() == ("", "")
