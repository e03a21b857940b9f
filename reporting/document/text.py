"""Values as a page, a chart and a CSV file show them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def number(value: float | None) -> str:
    """12 345: a thin space every three digits; a fraction has one digit behind the point."""
    if value is None:
        return "-"
    whole = f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"
    return whole.replace(",", "\u202f")


def seconds_text(value: float | None) -> str:
    """A span in the unit that suits it."""
    if value is None:
        return "-"
    size = abs(value)
    if size < 120:
        return f"{value:.1f} s"
    if size < 2 * 3600:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.1f} h" if size < 2 * 86_400 else f"{value / 86_400:.1f} days"


def bytes_text(value: float | None) -> str:
    """Bytes in the unit that suits them, by powers of 1,024."""
    if value is None:
        return "-"
    for unit, least in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= least:
            return f"{value / least:.1f} {unit}"
    return f"{value:.0f} B"


def share(value: float | None) -> str:
    """0.25 as `25.0 %`; what is more than nothing is never told as 0."""
    if value is None:
        return "-"
    return "< 0.1 %" if 0 < value < 0.0005 else f"{100 * value:.1f} %"


def shown(value: Any, kind: str = "text") -> str:
    """A value of a kind of column (`reporting.document.content.Kind`), but for times."""
    if value is None or value == "":
        return "-"
    if kind in ("number", "bar"):
        return number(value)
    if kind == "decimal":
        return f"{value:,.1f}".replace(",", "\u202f")
    if kind == "hundredth":
        return "< 0.01" if 0 < value < 0.005 else f"{value:,.2f}".replace(",", "\u202f")
    if kind == "share":
        return share(value)
    if kind == "seconds":
        return seconds_text(value)
    if kind == "bytes":
        return bytes_text(value)
    return harmless_text(str(value), 300)


def harmless_text(text: str, most: int = 120) -> str:
    """Control characters and overlong text made harmless for the layout."""
    clean = "".join(c if c.isprintable() else "\ufffd" for c in text)
    return clean if len(clean) <= most else clean[: most - 1] + "…"


def csv_cell(value: Any) -> str:
    """A cell that no spreadsheet takes for a formula: names in logs are chosen by outsiders."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, (list, tuple)):
        value = "; ".join(str(each) for each in value)
    if isinstance(value, str):
        return "'" + value if value.startswith(_FORMULA) else value
    return str(value)
