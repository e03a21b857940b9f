"""Every page of the console over the prepared lake, by a name for its picture."""

from __future__ import annotations

from tests.api.desk import Desk
from tests.console.story import CASE, IP, A, B

DAY = "since=2025-03-01T11:00:00Z&until=2025-03-01T14:00:00Z"


def places(desk: Desk) -> dict[str, str]:
    """Paths by name."""
    alert = alert_id(desk, "SSH login succeeded after guessing")
    return {
        "overview": "/",
        "alerts": "/alerts",
        "alerts-by-device": "/alerts?group=entity",
        "alert-beside": f"/alerts?open={alert}",
        "alert": f"/alerts/{alert}",
        "cases": "/cases",
        "case": f"/cases/{CASE}",
        "proposals": "/proposals",
        "device": f"/entity/mac/{B}",
        "device-then": f"/entity/mac/{A}?known_by=2025-03-01T12:30:00Z",
        "address": f"/entity/ip/{IP}",
        "user": f"/entity/user/root?{DAY}",
        "search": f"/search?{DAY}",
        "search-sql": "/search?sql=SELECT+source,+count(*)+AS+n+FROM+silver.events+GROUP+BY+source",
        "event": "/events/login-2:0?time=2025-03-01T12:01:00Z",
        "rules": "/rules",
        "rule": "/rules/ssh_login_after_guessing",
        "rule-less-noise": "/rules/ssh_password_guessing/tuning",
        "rule-editor": "/rule-editor?copy=ssh_login_failed",
        "sources": "/sources",
        "dead-letters": "/sources/dead?since=2025-03-01",
        "reports": "/reports",
        "admin": "/admin",
        "suppressions": "/admin?tab=suppressions",
        "audit": "/admin?tab=audit&since=2025-03-01",
    }


def alert_ids(desk: Desk) -> dict[str, str]:
    """Alerts by the title of their rule, one of each."""
    listed = desk.client().get("/api/v1/alerts", params={"limit": 500}).json()["items"]
    return {str(row["rule_name"]): str(row["alert_id"]) for row in listed}


def alert_id(desk: Desk, rule_name: str) -> str:
    """The alert of a rule."""
    return alert_ids(desk)[rule_name]
