"""What packages want `headgate doctor` and `headgate status` to look at besides the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from infra.config.settings import Settings

if TYPE_CHECKING:  # every command registers, and only two look at the machine
    from infra.runtime.machine_checks import Finding

_Check = Callable[[Settings], "Iterable[Finding]"]

_CHECKS: list[_Check] = []


def register_check(check: _Check) -> None:
    """Have a package look at something of its own."""
    _CHECKS.append(check)


def registered_findings(settings: Settings) -> Iterator[Finding]:
    """What the packages see."""
    for check in _CHECKS:
        yield from check(settings)
