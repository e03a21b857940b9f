"""Scheduled reports: a module here is a report, found by itself.

A report's module has four names: `NAME`, as the command takes it; `DOC`, a sentence; `TABLES`, what
it reads; and `compose(request)`, which gives the `Report` (`reporting.document.content`). It may
have `SUBJECT`: what `--subject` has to name, of a dossier about one thing. How a report looks, and
its PDF, JSON and CSV, are the same for all.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from types import MappingProxyType, ModuleType

_NAMES = ("NAME", "DOC", "TABLES", "compose")


@cache
def reports() -> MappingProxyType[str, ModuleType]:
    """Every report there is, by name."""
    modules = [
        import_module(f"{__name__}.{name}")
        for name in sorted(name for _, name, _ in pkgutil.iter_modules(__path__))
    ]
    whole = [module for module in modules if all(hasattr(module, name) for name in _NAMES)]
    return MappingProxyType({module.NAME: module for module in whole})
