"""Roles of callers, each with what the ones before it may."""

from __future__ import annotations

from typing import Literal, get_args

from infra.errors import Usage

Role = Literal["metrics", "read", "viewer", "analyst", "engineer", "admin"]
"""metrics: only /metrics; read: all that is looked up; viewer: statements too; analyst: changes
alerts and suppresses; engineer: rules; admin: users, keys and everything else."""

LADDER: tuple[Role, ...] = get_args(Role)
"""Each may do what those before it may."""

OLD_NAMES: dict[str, Role] = {"query": "viewer", "all": "admin"}
"""Roles as earlier releases named them."""


def role_of(name: str) -> Role:
    """A role by its name of today or of before; raises `Usage` for any other."""
    for role in LADDER:
        # Settings of an earlier release go on working.
        if role == OLD_NAMES.get(name, name):
            return role
    raise Usage(f"no role '{name}'; one of: {', '.join(LADDER)}")
