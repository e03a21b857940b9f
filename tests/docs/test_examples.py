"""The examples of tutorials and how-to pages work.

A block marked `bash` is run line by line against a finished lake; `headgate` in this process, all
else by bash. `python` is executed, `sql` asked, `yaml` compiled as a rule, `toml` loaded as
settings.
What would start Spark, a broker or a service stands in blocks marked `text`: of these every line
with `headgate` is read by the command's own parser, and NOT_RUN says why it is not run.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.compiler.compiler import compile_rules
from headgate.cli import COMMANDS, main
from headgate.command_aliases import current_words
from infra.config.settings import load
from infra.streaming.lake import Lake
from tests.docs.pages import HOW_TO, ROOT, TUTORIALS, Block, blocks, name_of
from tests.full import rest_full

GUIDES = [*TUTORIALS, *HOW_TO]

STARTS_SPARK = "starts a Spark session of its own; tested where the command is"
NEEDS_BROKER = "talks to a broker"
RUNS_ON = "runs until it is stopped"
CHANGES = "takes an id, a file or a folder that is the reader's"
NOT_RUN = {
    "alerts published": NEEDS_BROKER,
    "apply": CHANGES,
    "assets import": CHANGES,
    "accounts put": CHANGES,
    "evidence": "needs a case; tests/api/routes/test_cases.py",
    "keys add": CHANGES,
    "keys remove": CHANGES,
    "keys rotate": CHANGES,
    "api": RUNS_ON,
    "audit head": CHANGES,
    "audit verify": CHANGES,
    "backup": "copies a whole home; tests/infra/maintenance/test_backup.py",
    "compact": STARTS_SPARK,
    "demo": "takes a minute and a half; tests/e2e and the demo's own check",
    "erase": STARTS_SPARK,
    "export": "writes a folder; tests/headgate/as_code",
    "gaps": NEEDS_BROKER,
    "import": STARTS_SPARK,
    "indicators load": CHANGES,
    "kafka acls": NEEDS_BROKER,
    "kafka topics": NEEDS_BROKER,
    "lab": "writes a folder; tests/headgate/lab",
    "ledger": NEEDS_BROKER,
    "listen": RUNS_ON,
    "models backtest": STARTS_SPARK,
    "models show": CHANGES,
    "models train": STARTS_SPARK,
    "models use": CHANGES,
    "notebook": RUNS_ON,
    "plan": "needs an export; tests/headgate/as_code",
    "quality": STARTS_SPARK,
    "rebuild": STARTS_SPARK,
    "repair": STARTS_SPARK,
    "reparse": STARTS_SPARK,
    "jobs resume": "says no of a job that was not stopped",
    "rollup": STARTS_SPARK,
    "rules backtest": STARTS_SPARK,
    "rules cost": STARTS_SPARK,
    "rules import": CHANGES,
    "rules preview": STARTS_SPARK,
    "rules promote": CHANGES,
    "rules shadow": CHANGES,
    "sql --as-of": "the lake of the tests is younger than any instant a page can name",
    "suppress remove": CHANGES,
    "triage": CHANGES,
    "up": RUNS_ON,
    "users import": CHANGES,
    "verify": STARTS_SPARK,
    "webhooks test": "sends to a product; tests/alerts/delivery/test_webhook_forms.py",
}
"""Commands in blocks of `text`, and why they are not run. Their arguments are checked."""

MAY_SAY_NO = {
    "status",
    "doctor",
    "ledger",
    "rules coverage",
    "quality silence",
    "rules test",
    "lease",
    "who",
}
"""Commands whose exit code 1 is an answer."""

FOREIGN = {
    "send-logs-with-vector.md": "settings of Vector",
}
"""Pages whose TOML is not ours: it is only parsed."""

OTHER = {
    "py": "tests/headgate and tests/notebooks run it, where there is a broker or a lake",
    "rsyslog": "tests/ingest/parsing/test_rsyslog.py runs it against a broker",
    "ini": "settings of Fluent Bit",
    "properties": "settings of MirrorMaker",
    "json": "parsed below",
    "text": "checked below",
}
"""Languages that nothing here executes."""

LIST = "evil.example\n"


@pytest.mark.parametrize(
    "page", rest_full(lambda page: page.stem == "first-rule", GUIDES), ids=name_of
)
def test_the_examples_of_a_page_work(
    page: Path, finished: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    guide = Guide(page, finished, tmp_path, request)
    with pytest.MonkeyPatch.context() as patch:
        guide.enter(patch)
        for block in blocks(page):
            guide.check(block)


def test_every_exemption_is_used() -> None:
    used = {
        name
        for page in GUIDES
        for block in blocks(page)
        if block.language == "text"
        for words in headgate_lines(block.text)
        if (name := exempted(words)) is not None
    }
    assert set(NOT_RUN) - used == set()
    assert set(FOREIGN) - {page.name for page in GUIDES} == set()


class Guide:
    """The blocks of one page, checked in order, with what earlier ones left behind."""

    def __init__(
        self, page: Path, finished: Path, folder: Path, request: pytest.FixtureRequest
    ) -> None:
        self.page, self.folder, self.request = page, folder, request
        self.home = folder / "home"
        self.rules = folder / "rules"
        self.names: dict[str, Any] = {"__name__": "example", "token": "a-token"}
        shutil.copytree(finished, self.home)
        self.rules.mkdir()
        (folder / "samples").symlink_to(ROOT / "samples")
        (folder / "domains.txt").write_text(LIST, "utf-8")
        (folder / "Makefile").symlink_to(ROOT / "Makefile")

    def enter(self, patch: pytest.MonkeyPatch) -> None:
        """Work in a folder of the test's own, on a copy of the finished lake."""
        patch.chdir(self.folder)
        patch.setenv("HEADGATE_HOME", str(self.home))
        patch.setenv("HEADGATE_ALERTS__RULES", json.dumps([str(self.rules)]))
        patch.setenv("ALERT", "alert-1")
        for text in (block.text for block in blocks(self.page) if block.language == "yaml"):
            if "type: indicator" in text:
                assert main(["indicators", "load", "botnet", "domains.txt"]) == 0
            if is_rule(text):
                name = f"{len(list(self.rules.iterdir()))}.yml"
                (self.rules / name).write_text(text, "utf-8")

    def check(self, block: Block) -> None:
        """Check one block by its language."""
        checks = {
            "bash": self.bash,
            "python": self.python,
            "sql": self.sql,
            "yaml": self.yaml,
            "toml": self.toml,
            "text": self.parsed,
        }
        if block.language in checks:
            checks[block.language](block.text)
        else:
            assert block.language in OTHER, f"{self.page.name}: a block of '{block.language}'"

    def bash(self, text: str) -> None:
        """Run each command; it must not be called wrongly, nor fail."""
        for words in lines(text):
            if Path(words[0]).name == "headgate":
                self.run(arguments(words))
            elif words[0] == "make":
                assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text("utf-8"), re.M)
            else:
                subprocess.run(["bash", "-euc", shlex.join(words)], check=True)

    def run(self, words: list[str]) -> None:
        assert current_words(words)[1] is None, f"{self.page.name}: a former name, {words}"
        code = main(words)
        name = next((n for n in (" ".join(words[:2]), words[0]) if n in MAY_SAY_NO), None)
        assert code == 0 or (code == 1 and name is not None), (self.page.name, words, code)

    def python(self, text: str) -> None:
        """Execute it; a function `rule` with a header is also compiled as one."""
        if re.search(r"\bspark\.", text) and "import SparkSession" not in text:
            spark = self.request.getfixturevalue("spark")
            Lake(spark, load()).register()
            self.names["spark"] = spark
        exec(compile(text, str(self.page), "exec"), self.names)
        if text.lstrip().startswith('"""\ntitle:'):
            (self.folder / "rule.py").write_text(text, "utf-8")
            assert compile_rules([self.folder / "rule.py"]).refused == ()

    def sql(self, text: str) -> None:
        """Ask it of the finished lake."""
        self.run(["sql", text])

    def yaml(self, text: str) -> None:
        """A rule is in force with the bundled ones; anything else is only parsed."""
        if not is_rule(text):
            assert yaml.safe_load(text)
            return
        listed = io.StringIO()
        with contextlib.redirect_stdout(listed):
            assert main(["rules", "list", "--output", "json"]) == 0
        rule = yaml.safe_load(text)
        states = [
            row["state"] for row in json.loads(listed.getvalue()) if rule["id"] in row.values()
        ]
        assert [state for state in states if not state.startswith("refused")] != []

    def toml(self, text: str) -> None:
        """Settings are loaded as a file of theirs would be."""
        if self.page.name in FOREIGN:
            assert tomllib.loads(text)
            return
        file = self.folder / "example.toml"
        file.write_text(text, "utf-8")
        load(file)

    def parsed(self, text: str) -> None:
        """Commands that are not run are called rightly, and exempt by name."""
        for words in headgate_lines(text):
            assert exempted(words) is not None, f"{self.page.name}: run `{shlex.join(words)}`"
            today, notice = current_words(words)
            assert notice is None, f"{self.page.name}: {notice}"
            parser = argparse.ArgumentParser(prog="headgate")
            COMMANDS[today[0]].load()(parser.add_subparsers(required=True))
            try:
                parser.parse_args(today)
            except SystemExit:
                pytest.fail(f"{self.page.name}: `headgate {shlex.join(words)}` is called wrongly")


def lines(text: str) -> Iterator[list[str]]:
    """The commands of a block as words: a command may span lines by a quote or a backslash.

    What stands behind a pipe or a redirection only shows what was printed.
    """
    waiting = ""
    for line in text.splitlines():
        waiting += line + "\n"
        if waiting.endswith("\\\n"):
            waiting = waiting[:-2]
            continue
        try:
            words = shlex.split(waiting, comments=True)
        except ValueError:  # a quote is open: the next line belongs to it
            continue
        waiting = ""
        if words:
            yield [os.path.expandvars(word) for word in asked(words)]
    assert waiting == "", f"a quote is not closed: {waiting}"


def headgate_lines(text: str) -> Iterator[list[str]]:
    """Arguments of the lines that call `headgate`, behind variables and other commands."""
    for line in text.replace("\\\n", " ").splitlines():
        match = re.match(r"^(?:[A-Z_]+=\S+ +)*(?:\S*/)?headgate (.*)$", line.strip())
        if match:
            yield arguments(["headgate", *asked(shlex.split(match[1], comments=True))])


def asked(words: list[str]) -> list[str]:
    """A command without what stands behind a pipe or a redirection."""
    end = next((i for i, word in enumerate(words) if word in ("|", "<", ">", ">>")), len(words))
    return words[:end]


def arguments(words: list[str]) -> list[str]:
    """A command's arguments without the options that stand before it."""
    rest = words[1:]
    while rest and rest[0] in ("--config", "--home"):
        rest = rest[2:]
    return rest


def exempted(words: list[str]) -> str | None:
    """The name under which a command is exempt from being run."""
    return next((name for name in (" ".join(words[:2]), words[0]) if name in NOT_RUN), None)


def is_rule(text: str) -> bool:
    """Whether a block of YAML is a rule."""
    return re.search(r"^title: ", text, re.M) is not None
