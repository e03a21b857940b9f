"""The documentation is true where a test can tell: links, names, and what is made from the code."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from headgate.cli import COMMANDS
from infra.config.settings import (
    ApiKeySettings,
    FolderSettings,
    ScopeSettings,
    Settings,
    SourceSettings,
    WebhookSettings,
)
from infra.runtime.job_registry import JOBS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    ROOT / "samples/NOTICE.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
MADE = "<!-- below: made from infra/config/settings.py, checked by tests/docs -->\n"
"""What stands above this line of docs/reference/settings.md is written by hand."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_a_file_and_a_heading(page: Path) -> None:
    broken = []
    for target in re.findall(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in headings(there)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_named_in_the_text_are_there(page: Path) -> None:
    folders = "infra|ingest|enrich|alerts|reporting|api|tests|bench|samples|docs|notebooks"
    paths = re.findall(rf"`((?:{folders})/[\w./-]*)`", prose(page))
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", ["tables", "sources"])
def test_a_page_made_by_a_command_is_up_to_date(name: str) -> None:
    command = [sys.executable, "-m", "headgate.cli", name, "--output", "markdown"]
    wanted = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert (ROOT / f"docs/reference/{name}.md").read_text("utf-8") == wanted, "run `make docs`"


def test_the_settings_page_is_up_to_date(tmp_path: Path) -> None:
    page = (ROOT / "docs/reference/settings.md").read_text("utf-8")
    written, mark, made = page.partition(MADE)
    wanted = "\n".join(sections())
    new = tmp_path / "settings.md"
    new.write_text(written + MADE + wanted, "utf-8")
    assert mark == MADE
    assert made == wanted, f"cp {new} docs/reference/settings.md"


def test_the_readme_names_every_command_and_job() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| (`headgate [^|]+)\|", readme, re.M)
    told = {name for row in rows for name in re.findall(r"`headgate ([\w-]+)", row)}
    assert told == set(COMMANDS)
    assert [job for job in JOBS if f"`{job}`" not in readme] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_targets_in_the_text_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    makefile = (ROOT / "Makefile").read_text("utf-8")
    commands = set(re.findall(r"(?:`|^\s*|\$ )headgate ([a-z][a-z-]*)", text, re.M))
    targets = set(re.findall(r"(?:`|^)make ([a-z][a-z-]*)", text, re.M))
    assert commands - set(COMMANDS) == set()
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.M)] == []


def test_no_tracked_text_names_a_path_of_this_machine() -> None:
    here = f"{ROOT}/"
    beside = f"{ROOT.with_name('shared')}/"  # where material for the work, but not of it, may lie
    naming = []
    for path in tracked():
        text = path.read_bytes()
        if here.encode() in text or beside.encode() in text:
            naming.append(str(path.relative_to(ROOT)))
    assert naming == []


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.S | re.M)


def headings(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    found = re.findall(r"^#+ (.+)$", prose(page), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in found}


def tracked() -> list[Path]:
    """Files of the repository, also those not committed yet."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in names.split("\0") if name and (path := ROOT / name).is_file()]


def sections() -> Iterator[str]:
    """The settings page from the models: one table for each section of the file."""
    plain = {n: f for n, f in Settings.model_fields.items() if not nested(f)}
    yield from section("At the top of the file", "", plain)
    for name, field in Settings.model_fields.items():
        if model := nested(field):
            yield from section(f"[{name}]", doc(model), model.model_fields)
    yield from section("[sources.NAME]", doc(SourceSettings), SourceSettings.model_fields)
    yield from section("[folders.NAME]", doc(FolderSettings), FolderSettings.model_fields)
    yield from section("[[scopes]]", doc(ScopeSettings), ScopeSettings.model_fields)
    yield from section("[[api.keys]]", doc(ApiKeySettings), ApiKeySettings.model_fields)
    yield from section("[[webhooks]]", doc(WebhookSettings), WebhookSettings.model_fields)


def section(title: str, about: str, fields: dict[str, FieldInfo]) -> Iterator[str]:
    yield f"## {title}\n"
    if about:
        yield f"{about}\n"
    yield "| setting | type | default | meaning |\n|---|---|---|---|"
    for name, field in fields.items():
        yield f"| `{name}` | {kind(field.annotation)} | {default(field)} | {meaning(field)} |"
    yield ""


def meaning(field: FieldInfo) -> str:
    """The description, safe in a page where `<home>` would be taken for HTML."""
    return (field.description or "").replace("<", "\\<").replace("|", "\\|")


def nested(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a section; None for a plain setting."""
    model = field.annotation
    return model if isinstance(model, type) and issubclass(model, BaseModel) else None


def doc(model: type[BaseModel]) -> str:
    return " ".join((model.__doc__ or "").split())


def kind(annotation: Any) -> str:
    """A type in words."""
    words = {str: "text", int: "whole number", float: "number", bool: "true or false"}
    words |= {Path: "path", SecretStr: "secret"}
    if annotation in words:
        return words[annotation]
    origin, inside = get_origin(annotation), [a for a in get_args(annotation) if a is not NoneType]
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in inside)
    if origin is tuple:
        return f"list of {kind(inside[0])}"
    if origin is dict:
        return f"table of {kind(inside[1])}"
    if origin is UnionType:
        return kind(inside[0])
    return f"`{annotation.__name__}`"


def default(field: FieldInfo) -> str:
    if field.default_factory is not None:
        return "empty"
    value = field.default
    if value is PydanticUndefined:
        return "required"
    if value is None:
        return "none"
    if isinstance(value, tuple):
        shown = ", ".join(f"`{item}`" for item in value if not isinstance(item, BaseModel))
        return shown or ("empty" if not value else "below")
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
