"""What answers who is limited to tenants, and what is closed to them.

A question that forgets its tenant is the leak nobody sees in a review. So it is no question's to
remember: the engine that answers such callers has other views, under the same names
(`alerts.domain.tenant_rows`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Never, Protocol

from infra.config.tenants import owner_of, scope_of
from infra.delta.duckdb_views import AskedViews
from infra.delta.plain_files import Span
from infra.errors import Usage


class LakeReader(Protocol):
    """What answers questions to the lake, and for whom: `api.services.reader`, or `WholeLake`."""

    @property
    def tenants(self) -> Sequence[str] | None:
        """All whose rows are there to be asked; None: every row."""

    def rows(
        self,
        sql: str,
        params: Mapping[str, Any],
        *,
        needs: Sequence[str],
        within: Mapping[str, Span] = ...,
    ) -> list[dict[str, Any]]:
        """The rows of a query; see `api.services.reader.Reader.rows`."""


class WholeLake(AskedViews):
    """What a command asks, which sees every row."""

    tenants = None


class NotForTenants(Usage):
    """What is asked for shows what is of several tenants."""


def refused_to_tenants(what: str) -> NotForTenants:
    """Why who is limited to tenants does not get something."""
    return NotForTenants(
        f"{what} may show what is of other tenants, and is closed to who is limited to some tenants"
    )


def scope_asked(tenants: Sequence[str] | None, scope: str | None) -> str | None:
    """The scope that is meant by one that was typed: who has one tenant may leave that out.

    Raises `Usage` where it may be that of several.
    """
    if tenants is None or scope is None or owner_of(scope) is not None:
        return scope
    if len(tenants) != 1:
        several = " or ".join(scope_of(scope, name) for name in tenants)
        raise Usage(f"scope: '{scope}' may be that of several tenants; say {several}")
    return scope_of(scope, tenants[0])


class ClosedService:
    """Stands where a service is that cannot be limited to tenants; whatever is asked is refused."""

    def __init__(self, name: str) -> None:
        self._closed = name

    def __getattr__(self, name: str) -> Never:
        raise refused_to_tenants(self._closed)


def closed(name: str) -> Any:
    """A service of any kind that refuses all, called `name` in its sentence."""
    return ClosedService(name)
