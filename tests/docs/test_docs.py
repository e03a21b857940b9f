"""The documentation is true where a test can tell: links, names, and what is made from the code."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
import yaml

from headgate.cli import COMMANDS
from infra.config.settings import Settings
from infra.delta.catalog import catalog, views
from infra.runtime.job_registry import JOBS
from ingest.parsing.source import sources
from tests.docs import generated
from tests.docs.pages import (
    CURRENT,
    DECISIONS,
    DOCS,
    HISTORY,
    HOW_TO,
    PAGES,
    ROOT,
    code_spans,
    headings,
    name_of,
    prose,
    tracked,
    words,
)
from tests.docs.tried_lines import table

PACKAGES = "infra|ingest|enrich|alerts|reporting|api|headgate"
MOST_WORDS = 600
"""Of a how-to page: more is two tasks, or an explanation."""
MOST_OF_A_DECISION = 250
MOST_IN_ALL = 35_000
"""Of README, CONTRIBUTING and docs as far as people write them: a new page takes the place of
what it makes superfluous."""
NO_SETTINGS = {
    "alerts.state",
    "alerts.progress",
    "api.yaml",
    "maintenance.yaml",
    "retention.ms",
    "spark.jars",
}
"""Names with a section's first word that are topics, files, or settings of Kafka and Spark."""
every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)
current_page = pytest.mark.parametrize("page", CURRENT, ids=name_of)


@every_page
def test_links_lead_to_a_file_and_a_heading(page: Path) -> None:
    broken = []
    for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        if not linked.exists() or (anchor and anchor not in headings(linked)):
            broken.append(target)
    assert broken == []


@current_page
def test_files_named_in_the_text_are_there(page: Path) -> None:
    folders = f"{PACKAGES}|tests|bench|samples|docs|notebooks"
    paths = re.findall(rf"`((?:{folders})/[\w./@-]*)`", prose(page))
    assert [path for path in paths if not (ROOT / path).exists()] == []


@current_page
def test_python_names_in_the_text_exist(page: Path) -> None:
    dotted = [
        span.removesuffix("()")
        for span in code_spans(page)
        if re.fullmatch(rf"(?:{PACKAGES})(?:\.\w+){{2,}}(?:\(\))?", span)
    ]
    assert [name for name in dotted if not _resolves(name)] == []


@current_page
def test_settings_in_the_text_exist(page: Path) -> None:
    sections = {name: model for name, f in Settings.model_fields.items() if (model := _model(f))}
    named = re.findall(rf"`((?:{'|'.join(sections)})\.[a-z_]+)`", prose(page))
    unknown = []
    for name in set(named) - NO_SETTINGS:
        section, _, key = name.partition(".")
        if key not in sections[section].model_fields:
            unknown.append(name)
    assert unknown == []


@current_page
def test_tables_and_metrics_in_the_text_exist(page: Path) -> None:
    tables = {table.name for table in catalog().values()} | set(views())
    layers = re.findall(r"`((?:bronze|silver|gold|ops)\.[a-z_]+)`", prose(page))
    assert set(layers) - tables == set()
    shown = re.findall(r"`(headgate_(?:job|ledger|maintenance|http|lake)_\w+)`", prose(page))
    metrics = (DOCS / "reference" / "metrics.md").read_text("utf-8")
    assert [name for name in shown if f"`{name}`" not in metrics] == []


@current_page
def test_commands_and_targets_in_the_text_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    makefile = (ROOT / "Makefile").read_text("utf-8")
    commands = set(re.findall(r"(?:`|^\s*|\$ )headgate ([a-z][a-z-]*)", text, re.M))
    targets = set(re.findall(r"(?:`|^\s*)make ([a-z][a-z-]*)", text, re.M))
    assert commands - set(COMMANDS) == set()
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.M)] == []


def test_of_every_source_it_is_told_how_many_lines_of_which_versions_were_tried() -> None:
    rows = [line.strip("| ").split(" | ") for line in table() if line.startswith("| `")]
    named = {row[0].strip("`") for row in rows}
    families = {name.partition(":")[0] for name in sources()}
    assert families <= named
    for row in rows:
        assert len(row) == 4, row
        assert int(row[1] or 0) + int(row[2] or 0) > 0, row
        assert len(row[3]) > 5, row


def test_generated_pages_are_up_to_date() -> None:
    stale = [
        name
        for name, text in generated.pages().items()
        if (DOCS / "reference" / name).read_text("utf-8") != text
    ]
    assert stale == [], "run `make docs`"


@pytest.mark.parametrize("page", HOW_TO, ids=name_of)
def test_a_how_to_is_short(page: Path) -> None:
    assert words(page) <= MOST_WORDS


@pytest.mark.parametrize("page", DECISIONS, ids=name_of)
def test_a_decision_is_short(page: Path) -> None:
    assert words(page) <= MOST_OF_A_DECISION


def test_all_pages_together_can_be_read_in_some_hours() -> None:
    # What is made from the code is looked up, not read, and a new source must not shorten a how-to.
    made = {DOCS / "reference" / name for name in generated.pages()}
    by_hand = {page for page in PAGES if page != HISTORY and "samples" not in page.parts} - made
    assert sum(words(page) for page in by_hand) <= MOST_IN_ALL


def test_every_prometheus_alert_has_a_runbook() -> None:
    rules = yaml.safe_load((ROOT / "infra/deploy/dashboards/alerts.yml").read_text("utf-8"))
    alerts = [rule["alert"] for group in rules["groups"] for rule in group["rules"]]
    folder = DOCS / "how-to" / "runbooks"
    index = (folder / "README.md").read_text("utf-8")
    runbooks = [p.read_text("utf-8") for p in folder.glob("*.md") if p.name != "README.md"]
    assert alerts != []
    assert [name for name in alerts if f"`{name}`" not in index] == []
    assert [name for name in alerts if not any(f"`{name}`" in page for page in runbooks)] == []
    linked = [
        rule["annotations"]["runbook"] for group in rules["groups"] for rule in group["rules"]
    ]
    assert [path for path in linked if not (ROOT / path).exists()] == []


def test_every_page_is_reached_from_the_index() -> None:
    reached, waiting = set(), [DOCS / "README.md"]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        for target in re.findall(r"\]\(([^)\s#]+)", prose(page)):
            linked = (page.parent / target).resolve()
            if linked.suffix == ".md" and linked.is_relative_to(DOCS) and linked not in reached:
                waiting.append(linked)
    assert {name_of(page) for page in DOCS.rglob("*.md")} - {
        name_of(page) for page in reached
    } == set()


def test_the_readme_names_every_job() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert [job for job in JOBS if f"`{job}`" not in readme] == []


def test_no_tracked_text_names_a_path_of_this_machine() -> None:
    here = f"{ROOT}/"
    beside = f"{ROOT.with_name('shared')}/"  # where material for the work, but not of it, may lie
    naming = []
    for path in tracked():
        text = path.read_bytes()
        if here.encode() in text or beside.encode() in text:
            naming.append(str(path.relative_to(ROOT)))
    assert naming == []


def test_pages_named_in_the_code_are_there() -> None:
    """Messages, comments and settings send readers to pages by their path."""
    kinds = (".py", ".toml", ".yml", ".yaml", ".conf", ".service", ".ipynb")
    gone = [
        f"{path.relative_to(ROOT)}: {named}"
        for path in tracked()
        if path.suffix in kinds
        for named in re.findall(r"(?<![\w/.])docs/[\w/-]+\.md", path.read_text("utf-8"))
        if not (ROOT / named).exists()
    ]
    assert gone == []


def test_the_changelog_keeps_an_open_section() -> None:
    assert re.search(r"^## .*Unreleased", HISTORY.read_text("utf-8"), re.M)


def _model(field: object) -> type | None:
    return generated.nested(field)  # type: ignore[arg-type]


def _resolves(dotted: str) -> bool:
    """Whether it is a module, or a name in one."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            value: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            if not hasattr(value, name):
                return False
            value = getattr(value, name)
        return True
    return False
