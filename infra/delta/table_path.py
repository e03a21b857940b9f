"""Where a table lies below the lake's root."""

from __future__ import annotations


def path_of(name: str) -> str:
    """Path of a table below the lake's root: `silver.event` lies in `silver/event`."""
    return name.replace(".", "/")
