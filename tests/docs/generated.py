"""Reference pages that are made from the code: `make docs` writes them, a test compares them."""

from __future__ import annotations

import argparse
import contextlib
import io
import textwrap
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import yaml
from prometheus_client.core import Metric
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from alerts.asyncapi_document import asyncapi_document
from api.observability.metrics import Meters
from api.problems import _KINDS
from api.sql.allowlist import NAMES
from api.sql.spark_functions import FUNCTIONS, TABLE_FUNCTIONS
from headgate.cli import COMMANDS, main
from infra.config.intelligence_section import TaxiiFeedSettings
from infra.config.listen_section import (
    ListenRouteSettings,
    OtlpListenerSettings,
    SyslogListenerSettings,
)
from infra.config.settings import (
    ApiKeySettings,
    FolderSettings,
    KafkaSettings,
    OidcSettings,
    ScopeSettings,
    Settings,
    SourceSettings,
    WebhookSettings,
)
from tests.docs.pages import DOCS
from tests.docs.tried_lines import table

REFERENCE = DOCS / "reference"
MADE = "<!-- below: made from infra/config/settings.py by `make docs` -->\n"
"""What stands above this line of the settings page is written by hand."""


def pages() -> dict[str, str]:
    """The generated pages by name."""
    by_hand = (REFERENCE / "settings.md").read_text("utf-8").partition(MADE)[0]
    return {
        "commands.md": "\n".join(commands()),
        "metrics.md": "\n".join(metrics()),
        "api-errors.md": "\n".join(problems()),
        "settings.md": by_hand + MADE + "\n".join(sections()),
        "tables.md": printed("tables"),
        "asyncapi.yaml": yaml.safe_dump(
            asyncapi_document(KafkaSettings()), sort_keys=False, allow_unicode=True, width=100
        ),
        "sources.md": printed("sources") + "\n".join(table()) + "\n",
        "sql-functions.md": "\n".join(functions()),
    }


def printed(command: str) -> str:
    """What a command prints in Markdown."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main([command, "--output", "markdown"]) == 0
    return out.getvalue()


AREAS = {
    "infra": "Run it",
    "headgate": "Try it",
    "ingest": "Bring logs in",
    "enrich": "Leases, assets, counts",
    "alerts": "Detect",
    "api": "Ask",
    "reporting": "Account",
}


def commands() -> Iterator[str]:
    """Every command with its own commands, by the package that brings it."""
    yield "# Commands\n"
    yield "Made by `make docs`; do not edit. `headgate COMMAND --help` lists the options.\n"
    for package, title in AREAS.items():
        yield f"## {title}\n"
        for name, command in COMMANDS.items():
            if command.load.__module__.split(".")[0] == package:
                inner = [f"- `{name} {below}`: {doc}" for below, doc in subcommands(name)]
                yield from inner or [f"- `{name}`: {command.help}"]
        yield ""


def subcommands(name: str) -> Iterator[tuple[str, str]]:
    """The commands below a command, with their line of help."""
    for action in parser_of(name)._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action._choices_actions:
                yield str(choice.dest), (choice.help or "").replace("%%", "%")


def parser_of(name: str) -> argparse.ArgumentParser:
    """The parser of one command, as `headgate` builds it."""
    parser = argparse.ArgumentParser(prog="headgate")
    inner = parser.add_subparsers(dest="command", required=True)
    COMMANDS[name].load()(inner)
    built: argparse.ArgumentParser = inner.choices[name]
    return built


DEPRECATED = "Deprecated, gone with the next release: "


def metrics() -> Iterator[str]:
    """What `/metrics` shows."""
    yield "# Metrics\n"
    yield "Made by `make docs`; do not edit. `GET /metrics` gives them as Prometheus text."
    yield "Those of jobs have the label `headgate_job`. A metric without a type is a gauge.\n"
    current, former = [], []
    registry = Meters(Settings()).registry
    for collector in registry._collector_to_names:
        for family in collector.describe():
            labels = getattr(collector, "_labelnames", None) or labels_of(family)
            others = [] if family.type == "gauge" else [family.type]
            others += [f"`{label}`" for label in labels if label != "headgate_job"]
            name = f"{family.name}_total" if family.type == "counter" else family.name
            about = f" ({', '.join(others)})" if others else ""
            if family.documentation.startswith(DEPRECATED):
                successor = family.documentation.removeprefix(DEPRECATED).rstrip(".")
                former.append(f"- `{name}`: `{successor}`")
            else:
                current.append(f"- `{name}`{about}: {family.documentation}")
    yield from sorted(current)
    yield "\n## Former names, gone with the next release\n"
    yield from sorted(former)
    yield ""


def labels_of(family: Metric) -> tuple[str, ...]:
    """Labels of a family that a collector of ours describes."""
    return tuple(getattr(family, "_labelnames", ()) or ())


def problems() -> Iterator[str]:
    """Types of the API's errors."""
    yield "# Errors of the REST API\n"
    yield "Made by `make docs`; do not edit. Errors are `application/problem+json` (RFC 9457):"
    yield "`type` is `urn:headgate:problem:` and a name that stays; `detail` says what is wrong"
    yield "and the way out.\n"
    reasons: dict[tuple[str, int], list[str]] = {}
    for error, status, name in _KINDS:
        reasons.setdefault((name, status), []).append(doc(error))
    for (name, status), docs in reasons.items():
        yield f"- `{name}` ({status}): {' '.join(docs)}"
    yield "\nOther refusals have the name of their status: `not-found` (404), `unauthorized` (401),"
    yield "`forbidden` (403).\n"


def functions() -> Iterator[str]:
    """What a statement may call."""
    yield "# Functions of SQL statements\n"
    yield "Made by `make docs`; do not edit. `engine` chooses [who answers](api.md#statements)."
    for title, names in (
        ("DuckDB, as Spark does", NAMES),
        ("Spark", FUNCTIONS),
        ("Spark, in the place of a table", TABLE_FUNCTIONS),
    ):
        # Operators are among them, by their signs.
        called = sorted(name for name in names if name.isidentifier())
        yield f"\n## {title}\n"
        yield "\n".join(textwrap.wrap(" ".join(f"`{name}`" for name in called), 100))
    yield ""


def write() -> None:
    """Write all of them."""
    for name, text in pages().items():
        (REFERENCE / name).write_text(text, "utf-8")


LISTENING: dict[str, type[BaseModel]] = {
    "[[listen.syslog]]": SyslogListenerSettings,
    "[[listen.routes]]": ListenRouteSettings,
    "[listen.otlp]": OtlpListenerSettings,
}


def sections() -> Iterator[str]:
    """The settings page from the models: one table for each section of the file."""
    plain = {n: f for n, f in Settings.model_fields.items() if not nested(f)}
    yield from section("At the top of the file", "", plain)
    titles: dict[type[BaseModel], list[str]] = {}
    for name, field in Settings.model_fields.items():
        if model := nested(field):
            titles.setdefault(model, []).append(f"[{name}]")
    for model, names in titles.items():
        yield from section(", ".join(names), doc(model), model.model_fields)
    yield from section("[sources.NAME]", doc(SourceSettings), SourceSettings.model_fields)
    yield from section("[folders.NAME]", doc(FolderSettings), FolderSettings.model_fields)
    yield from section("[[scopes]]", doc(ScopeSettings), ScopeSettings.model_fields)
    yield from section("[[api.keys]]", doc(ApiKeySettings), ApiKeySettings.model_fields)
    yield from section("[api.oidc]", doc(OidcSettings), OidcSettings.model_fields)
    for title, model in LISTENING.items():
        yield from section(title, doc(model), model.model_fields)
    title = "[[intelligence.taxii]]"
    yield from section(title, doc(TaxiiFeedSettings), TaxiiFeedSettings.model_fields)
    yield from section("[[webhooks]]", doc(WebhookSettings), WebhookSettings.model_fields)


def section(title: str, about: str, fields: dict[str, FieldInfo]) -> Iterator[str]:
    yield f"## {title}\n"
    if about:
        yield f"{about}\n"
    for name, field in fields.items():
        choice = choices(field.annotation)
        yield f"- `{name}`{default(field)}: {f'{choice}; ' if choice else ''}{meaning(field)}"
    yield ""


def meaning(field: FieldInfo) -> str:
    """The description, safe in a page where `<home>` would be taken for HTML."""
    return (field.description or "").replace("<", "\\<").replace("|", "\\|")


def nested(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a section; None for a plain setting."""
    model = field.annotation
    return model if isinstance(model, type) and issubclass(model, BaseModel) else None


def doc(described: type) -> str:
    return " ".join((described.__doc__ or "").split())


def choices(annotation: Any) -> str:
    """The values that a setting may have, where they are few."""
    return (
        " or ".join(f"`{v}`" for v in get_args(annotation))
        if get_origin(annotation) is Literal
        else ""
    )


def default(field: FieldInfo) -> str:
    """` = VALUE` in TOML; nothing for a setting that has none until it is set."""
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return " (required)"
    if value is None:
        return ""
    if isinstance(value, bool):
        return f" = `{str(value).lower()}`"
    if isinstance(value, tuple):
        return f" = `{[item for item in value if not isinstance(item, BaseModel)]}`"
    return f" = `{value}`" if str(value) else ' = `""`'


if __name__ == "__main__":
    write()
