"""What Okta's event types are in OCSF.

Types: https://developer.okta.com/docs/reference/api/event-types/ (about 900, and new ones
every month, hence read by their beginnings). This module reads no records itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ingest.parsing.ocsf import (
    ACCOUNT,
    API,
    AUTHENTICATION,
    ENTITY,
    FINDING,
    GROUP,
    OTHER,
    USER_ACCESS,
)

_LOGON, _LOGOFF, _SWITCH = 1, 2, 7
_TYPES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "user.session.start": (AUTHENTICATION, _LOGON),
        "user.session.end": (AUTHENTICATION, _LOGOFF),
        "user.session.clear": (AUTHENTICATION, _LOGOFF),
        "user.session.expire": (AUTHENTICATION, _LOGOFF),
        "user.session.access_admin_app": (AUTHENTICATION, _LOGON),
        "user.session.impersonation.initiate": (AUTHENTICATION, _SWITCH),
        "user.session.impersonation.end": (AUTHENTICATION, _LOGOFF),
        "user.session.context.change": (AUTHENTICATION, OTHER),
        "user.authentication": (AUTHENTICATION, _LOGON),
        "user.authentication.slo": (AUTHENTICATION, _LOGOFF),
        "user.authentication.universal_logout": (AUTHENTICATION, _LOGOFF),
        "user.mfa": (AUTHENTICATION, _LOGON),
        "user.mfa.factor": (ACCOUNT, OTHER),
        "user.mfa.factor.activate": (ACCOUNT, 10),
        "user.mfa.factor.unsuspend": (ACCOUNT, 10),
        "user.mfa.factor.deactivate": (ACCOUNT, 11),
        "user.mfa.factor.reset_all": (ACCOUNT, 11),
        "user.mfa.factor.suspend": (ACCOUNT, 11),
        "user.lifecycle": (ACCOUNT, OTHER),
        "user.lifecycle.create": (ACCOUNT, 1),
        "user.lifecycle.activate": (ACCOUNT, 2),
        "user.lifecycle.reactivate": (ACCOUNT, 2),
        "user.lifecycle.unsuspend": (ACCOUNT, 2),
        "user.lifecycle.deactivate": (ACCOUNT, 5),
        "user.lifecycle.suspend": (ACCOUNT, 5),
        "user.lifecycle.delete": (ACCOUNT, 6),
        "user.account": (ACCOUNT, OTHER),
        "user.account.lock": (ACCOUNT, 9),
        "user.account.unlock": (ACCOUNT, 12),
        "user.account.unlock_by_admin": (ACCOUNT, 12),
        "user.account.unlock_token": (ACCOUNT, 12),
        "user.account.reset_password": (ACCOUNT, 4),
        "user.account.expire_password": (ACCOUNT, 4),
        "user.account.update_password": (ACCOUNT, 3),
        "user.account.report_suspicious_activity_by_enduser": (FINDING, 1),
        "user.account.privilege.grant": (USER_ACCESS, 1),
        "user.account.privilege.revoke": (USER_ACCESS, 2),
        "user.risk.detect": (FINDING, 1),
        "user.risk.change": (FINDING, 1),
        "application.user_membership": (API, OTHER),
        "application.user_membership.add": (USER_ACCESS, 1),
        "application.user_membership.remove": (USER_ACCESS, 2),
        "application.user_membership.revoke": (USER_ACCESS, 2),
        "group.user_membership": (GROUP, OTHER),
        "group.user_membership.add": (GROUP, 3),
        "group.user_membership.remove": (GROUP, 4),
        "group.lifecycle.create": (GROUP, 6),
        "group.lifecycle.delete": (GROUP, 5),
        "group.privilege.grant": (GROUP, 1),
        "group.privilege.revoke": (GROUP, 2),
        "group.profile": (GROUP, OTHER),
        "group.application_assignment": (GROUP, OTHER),
        "security.threat.detected": (FINDING, 1),
        "security.attack": (FINDING, 1),
        "security.attack_protection": (FINDING, 1),
        "security.breached_credential.detected": (FINDING, 1),
        "security.request.blocked": (FINDING, 1),
        "security.session.detect_client_roaming": (FINDING, 1),
        "policy.entity_risk": (FINDING, 1),
    }
)
"""The type that a longer one begins with, in whole words, decides."""

_ENTITIES = (
    "application.lifecycle",
    "application.policy",
    "application.configuration",
    "device",
    "event_hook",
    "iam",
    "inline_hook",
    "network_zone",
    "policy.lifecycle",
    "policy.rule",
    "system.agent",
    "system.api_token",
    "system.brand",
    "system.feature",
    "system.idp",
    "system.log_stream",
    "system.oauth2",
    "system.org",
    "zone",
)
"""Beginnings of types that are about a thing under Okta's management."""
_CHANGES: Mapping[str, int] = MappingProxyType(
    {
        "create": 1,
        "add": 1,
        "update": 3,
        "change": 3,
        "delete": 4,
        "remove": 4,
        "revoke": 4,
        "enroll": 6,
        "unenroll": 7,
        "enable": 8,
        "disable": 9,
        "activate": 10,
        "deactivate": 11,
        "suspend": 12,
        "unsuspend": 13,
    }
)
"""Last words of such types, as activities of Entity Management."""


def kind_of(event_type: str) -> tuple[int, int]:
    """The class and activity of an event type; API Activity for all that have no own."""
    words = event_type[:200].split(".")
    for length in range(len(words), 0, -1):
        kind = _TYPES.get(".".join(words[:length]))
        if kind:
            return kind
    if any(event_type == start or event_type.startswith(f"{start}.") for start in _ENTITIES):
        return ENTITY, _CHANGES.get(words[-1], OTHER)
    return API, OTHER
