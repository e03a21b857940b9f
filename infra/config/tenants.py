"""Names of tenants, and what a tenant's feed of a source, and part of a site, is called."""

from __future__ import annotations

import re
from collections.abc import Sequence

from infra.errors import Usage

NAME = r"[a-z0-9][a-z0-9-]{0,62}"
"""No dot and no underscore: Kafka takes the two for one another in its metrics."""
_MARK = "tenant-"
OF_TENANT = f"^{_MARK}{NAME}[.](?=.)"
"""What stands before the site, as a pattern that Java reads, too."""
_FEED = re.compile(rf"{_MARK}({NAME})\.(.+)", re.DOTALL)


def feed_of(source: str, tenant: str | None) -> str:
    """What topics are named by: the source, before it the tenant whose logs these are."""
    return source if tenant is None else f"{_MARK}{tenant}.{source}"


def parts_of(feed: str) -> tuple[str, str | None]:
    """Source and tenant of a feed, the other way round."""
    match = _FEED.fullmatch(feed)
    return (feed, None) if match is None else (match[2], match[1])


def scope_of(site: str, tenant: str | None) -> str:
    """What rows name as their scope: the site, before it the tenant whose addresses these are."""
    return feed_of(site, tenant)


def site_of(scope: str) -> str:
    """The site of a scope, whose networks the settings list."""
    return parts_of(scope)[0]


def owner_of(scope: str | None) -> str | None:
    """The tenant whose part of a site a scope is, or whose a report's file; None: nobody's."""
    return None if scope is None else parts_of(scope)[1]


def listed_tenants(names: Sequence[str], tenants: Sequence[str], where: str) -> tuple[str, ...]:
    """These names; raises `Usage` for one that the settings do not list."""
    for name in names:
        # A slip would show nothing, now and for good, and be believed.
        if name not in tenants:
            there = ", ".join(tenants) or "none; list them in tenants of the settings"
            raise Usage(f"{where}: no tenant '{name}'; there are {there}")
    return tuple(names)
