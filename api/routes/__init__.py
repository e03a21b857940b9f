"""The endpoints, one module a subject; each checks its input and calls a service.

A module here, or in a folder here, with a `router` is served, behind a token of role `read` unless
its `ROLE` says otherwise: `metrics` for what a scraper may ask, None for probes, without a token.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType


def route_modules() -> Iterator[ModuleType]:
    """Every module below this folder that has routes, by name."""
    # Sorted: routes of one path are tried in the order in which they were added.
    for module in sorted(name for _, name, _ in pkgutil.walk_packages(__path__, f"{__name__}.")):
        imported = import_module(module)
        if hasattr(imported, "router"):
            yield imported
