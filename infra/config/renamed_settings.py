"""Former names of settings: each works for one release and says its new one.

The only place that knows them, for the file, for overrides and for environment variables.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from pydantic_settings import EnvSettingsSource

from infra.config.removed_settings import REMOVED_SETTINGS, without_removed
from infra.errors import Usage

RENAMED_SETTINGS = {
    "jobs.poison_attempts": "max_batch_failures",
    "jobs.late_seconds": "allowed_lateness_seconds",
    "jobs.rollup_late_seconds": "rollup_allowed_lateness_seconds",
    "folders.*.settle_seconds": "min_file_age_seconds",
}
"""New last word by former name; `*` stands for a name of somebody's choice."""

RENAMED_SECTIONS = {"upkeep": "maintenance"}
"""New name of a section by its former one."""

_warned: set[str] = set()


def with_new_names(values: Mapping[str, Any], above: tuple[str, ...] = ()) -> dict[str, Any]:
    """Nested settings under the names of today, without those that are gone.

    Raises `Usage` where the former and the new name of one setting are both there, and where a
    setting is gone and its value refused.
    """
    renamed: dict[str, Any] = {}
    for name, value in (values if above else without_removed(values)).items():
        path = (*above, name)
        new = _new_name(path)
        if new is not None:
            _require_alone(path, new, values)
        renamed[new or name] = with_new_names(value, path) if isinstance(value, Mapping) else value
    return renamed


class RenamingEnvironment(EnvSettingsSource):
    """Environment variables, also under former names: HEADGATE_JOBS__LATE_SECONDS."""

    def __call__(self) -> dict[str, Any]:
        """What they set, by the names of today."""
        values = super().__call__()
        # pydantic looks only for names that the settings have.
        for gone in REMOVED_SETTINGS:
            variable = f"{self.env_prefix}{gone}".lower()
            if "." not in gone and variable in self.env_vars:
                values[gone] = self.env_vars[variable]
        for former in RENAMED_SECTIONS:
            prefix = f"{self.env_prefix}{former}{self.env_nested_delimiter}".lower()
            inside = {
                name.removeprefix(prefix): value
                for name, value in self.env_vars.items()
                if name.startswith(prefix)
            }
            if inside:
                values[former] = inside
        return with_new_names(values)


def _new_name(path: tuple[str, ...]) -> str | None:
    if len(path) == 1:
        return RENAMED_SECTIONS.get(path[0])
    for pattern, new in RENAMED_SETTINGS.items():
        words = pattern.split(".")
        if len(words) == len(path) and all(
            word in ("*", name) for word, name in zip(words, path, strict=True)
        ):
            return new
    return None


def _require_alone(path: tuple[str, ...], new: str, values: Mapping[str, Any]) -> None:
    former, now = ".".join(path), ".".join((*path[:-1], new))
    if new in values:
        raise Usage(f"{former} is the former name of {now}: set one of them, not both")
    if former not in _warned:
        _warned.add(former)
        print(f"headgate: setting {former} is called {now} now", file=sys.stderr)
