"""Former words of commands work for one release and name their new one."""

from __future__ import annotations

import pytest

from headgate.cli import main
from headgate.command_aliases import ALIASES, DEFAULT_VERBS, Alias, current_words
from headgate.completion.words import words_of_all
from infra.runtime.command_registry import COMMANDS


@pytest.mark.parametrize("alias", ALIASES, ids=lambda alias: " ".join(alias.former))
def test_a_former_word_is_taken_for_the_new_one_and_says_so(alias: Alias, capsys) -> None:
    words, sentence = current_words([*alias.former, "--reason", "why", "x"])
    assert words == [*alias.now, "--reason", "why", "x"]
    with pytest.raises(SystemExit) as ended:
        main([*alias.former, "--help"])
    assert ended.value.code == 0
    printed = capsys.readouterr()
    former, now = " ".join(alias.former), " ".join(alias.now)
    assert printed.err == f"headgate: 'headgate {former}' is called 'headgate {now}' now\n"
    assert f"usage: headgate {now}" in printed.out
    assert sentence == f"'headgate {former}' is called 'headgate {now}' now"


def test_no_former_word_is_a_command_of_today() -> None:
    tree = words_of_all()
    assert [alias.former for alias in ALIASES if " ".join(alias.former) in tree] == []
    assert [alias.now for alias in ALIASES if " ".join(alias.now) not in tree] == []


def test_options_may_stand_between_the_words_of_a_former_command() -> None:
    words, sentence = current_words(["load", "--inventory", "cmdb", "users", "assets"])
    assert words == ["users", "import", "--inventory", "cmdb", "assets"]
    assert sentence is not None


@pytest.mark.parametrize("command", sorted(DEFAULT_VERBS))
def test_a_command_without_a_verb_means_its_first(command: str) -> None:
    verb, verbs = DEFAULT_VERBS[command]
    assert current_words([command]) == ([command, verb], None)
    assert current_words([command, "--output", "json"]) == (
        [command, verb, "--output", "json"],
        None,
    )
    for named in (*verbs, "--help"):
        assert current_words([command, named]) == ([command, named], None)
    assert set(words_of_all()[command].commands) == set(verbs)


def test_other_words_stay_as_they_are() -> None:
    for words in (["rules", "list"], ["sql", "SELECT 1"], ["sizes"], []):
        assert current_words(words) == (words, None)


def test_every_command_of_a_former_release_is_still_taken() -> None:
    former = {
        *("doctor", "up", "run", "status", "resume", "compact", "backup", "restore-backup"),
        *("size", "tables", "settings", "kafka", "replay", "import", "sources", "parse", "gaps"),
        *("accept-gap", "quality", "reparse", "load", "rollup", "rebuild", "rules", "models"),
        *("indicators", "alerts", "explain", "verify", "suppress", "triage", "repair"),
        *("webhooks", "lease", "who", "sql", "api", "report", "erase", "ledger", "demo"),
    }
    taken = set(COMMANDS) | {alias.former[0] for alias in ALIASES}
    assert former - taken == set()
