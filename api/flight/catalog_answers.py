"""What a driver asks about the lake before it asks the lake: schemas, tables, columns, keys.

Layers (`silver`, `gold`) are its schemas. There is no catalogue above them: a name of three parts
is none that a statement can use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from api.auth import Caller
from api.flight.server_facts import sql_info, type_info
from api.key_limits import readable_tables
from api.services.view_columns import empty_views
from infra.config.settings import Settings
from infra.delta.catalog import catalog, views

_TEXT = pa.string()


def _schema(*fields: str) -> pa.Schema:
    """Columns of a listing, `name` or `name!` for one that is never null; all are texts."""
    return pa.schema([pa.field(name.rstrip("!"), _TEXT, not name.endswith("!")) for name in fields])


_CATALOGS = _schema("catalog_name!")
_SCHEMAS = _schema("catalog_name", "db_schema_name!")
_TABLES = _schema("catalog_name", "db_schema_name", "table_name!", "table_type!")
_TABLE_SCHEMA = pa.field("table_schema", pa.binary(), nullable=False)
_TYPES = _schema("table_type!")
_PRIMARY = _schema(
    "catalog_name", "db_schema_name", "table_name!", "column_name!", "key_name"
).append(pa.field("key_sequence", pa.int32(), nullable=False))
_FOREIGN = pa.schema(
    [
        *_schema(
            "pk_catalog_name", "pk_db_schema_name", "pk_table_name!", "pk_column_name!",
            "fk_catalog_name", "fk_db_schema_name", "fk_table_name!", "fk_column_name!",
        ),
        pa.field("key_sequence", pa.int32(), nullable=False),
        *_schema("fk_key_name", "pk_key_name"),
        pa.field("update_rule", pa.uint8(), nullable=False),
        pa.field("delete_rule", pa.uint8(), nullable=False),
    ]
)  # fmt: skip


@dataclass(frozen=True)
class CatalogQuestion:
    """A question about the lake: who asks, and the message of the protocol."""

    settings: Settings
    caller: Caller
    command: Any


@cache
def column_schemas() -> dict[str, pa.Schema]:
    """The columns of each table and view as a statement answers them, with their meaning."""
    docs = {
        (table.name, column.name): column.doc
        for table in catalog().values()
        for column in table.columns
    }
    schemas = {}
    with duckdb.connect(":memory:") as engine:
        engine.execute("SET TimeZone = 'UTC'")
        for name in empty_views(engine, Path("/")):
            schema = engine.execute(f"SELECT * FROM {name}").fetch_record_batch().schema
            schemas[name] = pa.schema(
                [_described(field, docs.get((name, field.name))) for field in schema]
            )
    return schemas


def _described(field: pa.Field, doc: str | None) -> pa.Field:
    return field if doc is None else field.with_metadata({"ARROW:FLIGHT:SQL:REMARKS": doc})


def catalog_answer(name: str, asked: CatalogQuestion) -> pa.Table | None:
    """The answer to a command by its name; None for one that asks nothing of this kind."""
    answering = _ANSWERS.get(name)
    return None if answering is None else answering(asked)


def _readable(asked: CatalogQuestion) -> list[tuple[str, str]]:
    """Name and kind of what the caller's statements may name."""
    limited = readable_tables(asked.caller)
    names = [(name, "TABLE") for name in catalog()] + [(name, "VIEW") for name in views()]
    return sorted((name, kind) for name, kind in names if limited is None or name in limited)


def _no_catalogs(asked: CatalogQuestion) -> pa.Table:
    return _CATALOGS.empty_table()


def _db_schemas(asked: CatalogQuestion) -> pa.Table:
    names: list[str] = []
    if _without_catalog(asked.command):
        pattern = _like(asked.command, "db_schema_filter_pattern")
        layers = {name.partition(".")[0] for name, _ in _readable(asked)}
        names = sorted(layer for layer in layers if pattern(layer))
    return pa.table([[None] * len(names), names], schema=_SCHEMAS)


def _tables(question: CatalogQuestion) -> pa.Table:
    command = question.command
    in_layer = _like(command, "db_schema_filter_pattern")
    in_name = _like(command, "table_name_filter_pattern")
    kinds = {kind.upper() for kind in command.table_types}
    rows: list[dict[str, Any]] = []
    for full, kind in _readable(question) if _without_catalog(command) else []:
        layer, _, name = full.partition(".")
        if in_layer(layer) and in_name(name) and (not kinds or kind in kinds):
            rows.append({"catalog_name": None, "db_schema_name": layer, "table_name": name,
                         "table_type": kind})  # fmt: skip
            if command.include_schema:
                rows[-1]["table_schema"] = column_schemas()[full].serialize().to_pybytes()
    schema = _TABLES.append(_TABLE_SCHEMA) if command.include_schema else _TABLES
    return pa.Table.from_pylist(rows, schema=schema)


def _table_types(asked: CatalogQuestion) -> pa.Table:
    return pa.table([["TABLE", "VIEW"]], schema=_TYPES)


def _primary_keys(question: CatalogQuestion) -> pa.Table:
    """The columns that tell a table's rows apart; a job keeps them so, no constraint does."""
    command = question.command
    full = f"{command.db_schema}.{command.table}".lower()
    table = catalog().get(full) if full in dict(_readable(question)) else None
    layer, _, name = full.partition(".")
    rows = [
        {"catalog_name": None, "db_schema_name": layer, "table_name": name, "column_name": column,
         "key_name": None, "key_sequence": place}
        for place, column in enumerate(table.key if table else (), 1)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=_PRIMARY)


def _no_foreign_keys(asked: CatalogQuestion) -> pa.Table:
    return _FOREIGN.empty_table()


def _without_catalog(command: Any) -> bool:
    """Whether the filter lets through what has no catalogue, as all has here."""
    return not command.HasField("catalog") or command.catalog == ""


def _like(command: Any, field: str) -> Callable[[str], bool]:
    r"""A filter by SQL's LIKE, without case: `%` any text, `_` a character, `\` before itself."""
    if not command.HasField(field):
        return lambda _: True
    parts = re.findall(r"\\.|.", getattr(command, field), re.DOTALL)
    wild = {"%": ".*", "_": "."}
    pattern = "".join(wild.get(part) or re.escape(part[-1]) for part in parts)
    return lambda name: re.fullmatch(pattern, name, re.IGNORECASE | re.DOTALL) is not None


_ANSWERS: Mapping[str, Callable[[CatalogQuestion], pa.Table]] = {
    "CommandGetCatalogs": _no_catalogs,
    "CommandGetDbSchemas": _db_schemas,
    "CommandGetTables": _tables,
    "CommandGetTableTypes": _table_types,
    "CommandGetPrimaryKeys": _primary_keys,
    "CommandGetExportedKeys": _no_foreign_keys,
    "CommandGetImportedKeys": _no_foreign_keys,
    "CommandGetCrossReference": _no_foreign_keys,
    "CommandGetSqlInfo": lambda asked: sql_info(asked.settings, asked.command.info),
    "CommandGetXdbcTypeInfo": lambda asked: type_info(
        asked.command.data_type if asked.command.HasField("data_type") else None
    ),
}
