"""Risks that Microsoft Entra ID Protection found, and alerts of Privileged Identity Management.

Read by `azure_audit`, and by `entra_id` without Azure Monitor's envelope:
https://learn.microsoft.com/graph/api/resources/riskdetection ,
https://learn.microsoft.com/graph/api/resources/riskyuser and
https://learn.microsoft.com/graph/api/resources/unifiedrolemanagementalert .
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ingest.sources.cloud.common import Fields, look, look_text

SETTLED = frozenset({"confirmedSafe", "remediated", "dismissed", "none"})
"""States of a risk that nobody needs to look at any more."""
_INCIDENT = "AlertIncident"


def risk_kind(about: Fields) -> str | None:
    """What kind of risk was detected, such as `anonymizedIPAddress`."""
    return look_text(about, "riskEventType") or look_text(about, "riskType")


def is_risk(about: Fields) -> bool:
    """Whether it is a detected risk, or an account at risk."""
    return bool(risk_kind(about) or look_text(about, "riskLastUpdatedDateTime"))


def alert_kind(about: Fields) -> str | None:
    """Which alert of Privileged Identity Management it is, such as `StaleSignInAlert`.

    Microsoft Graph gives alerts and, of each, the incidents that it consists of.
    """
    definition = look_text(about, "alertDefinitionId")
    if definition:
        return definition.rpartition("_")[2]
    kind = (look_text(about, "@odata.type") or "").rpartition(".")[2]
    return kind.removesuffix("Incident") if kind.endswith(_INCIDENT) else None


def is_active(about: Fields) -> bool:
    """Whether an alert holds now: Graph lists each that there can be."""
    return str(look(about, "isActive")).lower() != "false"


_ALERT = ("RoleManagementAlerts", "Role management alert")
"""Of alerts diagnostic records have none."""
_CATEGORIES: Mapping[tuple[bool, bool], tuple[str, str]] = MappingProxyType(
    {
        (True, False): ("UserRiskEvents", "User Risk Detection"),
        (True, True): ("ServicePrincipalRiskEvents", "Service Principal Risk Detection"),
        (False, False): ("RiskyUsers", "Risky user"),
        (False, True): ("RiskyServicePrincipals", "Risky service principal"),
    }
)
"""Category and operation as diagnostic records name them: of a detected risk or of an account at
risk, and whether that is a service's."""


def category_of(about: Fields) -> tuple[str, str] | None:
    """The category and the operation of a bare record; None where it tells of no risk."""
    if alert_kind(about):
        return _ALERT
    if not is_risk(about):
        return None
    of_service = look_text(about, "servicePrincipalId") or look_text(about, "appId")
    return _CATEGORIES[bool(risk_kind(about)), bool(of_service)]
