"""Names that modules had in the release before: functions and notebooks that people kept import
them. They work for one release and say what to write instead."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "alerts.notebook": "alerts.spark_rules.notebook",
    "ingest.events": "ingest.parsing.arrow_parser",
    "ingest.jobs": "ingest.pipeline.ingest_job",
    "ingest.source": "ingest.parsing.source",
    "infra.lake": "infra.streaming.lake",
    "infra.settings": "infra.config.settings",
}
"""Modules that the documents of that release told people to import, and where they are now."""

_PROMISED = {"alerts.notebook": "write 'from headgate import rule_from, sql_rule, function_rule'"}
_OTHERS = "write 'import headgate' and begin with headgate.open()"


class _OldPaths(MetaPathFinder, Loader):
    """Finds a module by its old name. Asked last: what is there under a name comes first."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A spec for an old name, with a warning; None for any other."""
        if fullname not in MOVED:
            return None
        remedy = _PROMISED.get(fullname, _OTHERS)
        warnings.warn(
            f"{fullname} has moved and will be gone in the next release: {remedy}",
            # Python hides `DeprecationWarning` outside of `__main__`; the author of a rule must see
            # it.
            FutureWarning,
            stacklevel=2,
        )
        return ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """A module with all that the new one has."""
        module = ModuleType(spec.name)
        # The new module's own objects: `isinstance` holds whichever name they were imported by.
        module.__dict__.update(
            (name, value)
            for name, value in vars(import_module(MOVED[spec.name])).items()
            if not name.startswith("__")
        )
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to run."""


def install() -> None:
    """Let old names be found in this process."""
    if not any(isinstance(finder, _OldPaths) for finder in sys.meta_path):
        # Last: a real module of that name, such as a user's own, is found before it.
        sys.meta_path.append(_OldPaths())
