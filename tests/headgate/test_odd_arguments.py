"""No command line ends in a trace, however odd a value is: each is told which one and why."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path

import pytest

import headgate.packages  # noqa: F401  makes the commands known
from alerts.rulebook.rule_store import recompile
from alerts.rulepack.locations import BUNDLED, BUNDLED_MODELS
from headgate.cli import main, require_values
from infra.delta.catalog import catalog
from infra.errors import Usage
from tests.api.plain_desk import PlainDesk
from tests.full import rest_full
from tests.headgate.as_code.delta_by_hand import append_rows
from tests.headgate.odd_arguments import SERVES, STARTS, OddCall, odd_calls, parsers

CALLS = list(odd_calls())
RUN = [call for call in CALLS if call.runs]


OF_EACH_KIND = (
    BUNDLED / "connection_refused.yml",
    BUNDLED / "port_scan.yml",
    BUNDLED_MODELS / "device_rare_steps.yml",
)
"""Commands read all rules to find out that a value names none: a hundred would say no more."""


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("rules")
    for rule in OF_EACH_KIND:
        shutil.copy(rule, folder)
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, rules: Path) -> Path:
    """A lake with alerts, in which every table is there, and rules in force."""
    folder = tmp_path_factory.mktemp("odd")
    desk = PlainDesk(folder, general={"alerts": {"bundled": False, "rules": [str(rules)]}})
    # Where there are some, a command compiles only files that are new: else all, in each of these.
    recompile(desk.settings)
    desk.app.state.services.close()
    for table in catalog().values():
        if not (folder / "lake" / table.path).exists():
            append_rows(folder / "lake", table, [])
    return folder


@pytest.fixture(autouse=True)
def apart(home: Path, rules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths lie nowhere else, nothing is typed, and no broker answers."""
    below = tmp_path / "so" / "deep" / "as" / "upward"  # as far as ODD's path leads up
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    monkeypatch.setenv("HEADGATE_HOME", str(home))
    monkeypatch.setenv("HEADGATE_ALERTS__BUNDLED", "false")
    monkeypatch.setenv("HEADGATE_ALERTS__RULES", json.dumps([str(rules)]))
    monkeypatch.setenv("HEADGATE_KAFKA__BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))


def test_every_command_is_tried_or_named_with_why_it_is_not() -> None:
    paths = {path for path, _ in parsers()}
    assert {*SERVES, *STARTS} <= paths
    assert {call.path for call in CALLS} <= paths
    assert sum(call.quick for call in RUN) == 13


def test_values_that_are_empty_or_no_text_are_refused_by_every_command() -> None:
    refused = 0
    leaves = dict(parsers())
    for call in CALLS:
        if call.kind not in ("empty", "bytes") or call.may_be_empty:
            continue
        leaf = leaves[call.path]
        try:
            parsed = leaf.parse_args(list(call.words[len(call.path) :]))
        except (SystemExit, Usage):  # what reads the value says it
            continue
        given = getattr(parsed, call.dest)
        if isinstance((given if isinstance(given, list) else [given])[-1], Path):
            continue  # a file may have a name of any bytes
        with pytest.raises(Usage, match=r"is empty; write|is no text; write it in UTF-8"):
            require_values(leaf, [], parsed)
        refused += 1
    assert refused > 150


@pytest.mark.parametrize("call", rest_full(lambda call: call.quick, RUN), ids=lambda c: c.name)
def test_no_command_line_ends_in_a_trace(call: OddCall, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: object = main(call.words)
    except SystemExit as ended:  # argparse ends by itself
        code = ended.code
    printed = capsys.readouterr()
    assert code in (0, 1, 2), printed.err[-500:]
    assert "Traceback" not in printed.err
    if code == 2:
        # A value with a line break is repeated with it.
        (*_, sentence) = [line for line in printed.err.splitlines() if line.startswith("headgate")]
        assert len(sentence) > len("headgate: ") + 4, printed.err[-500:]
    assert "\x1b" not in printed.err, "a value steers no terminal"
