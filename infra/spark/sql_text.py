"""Texts within Spark SQL that is put together here."""

from __future__ import annotations


def sql_text(value: str) -> str:
    """A text as a literal. Spark reads a backslash in it as an escape, DuckDB does not."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
