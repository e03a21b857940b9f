"""Every page of the console over the prepared lake, by a name for its picture."""

from __future__ import annotations

from datetime import timedelta

from tests.alerts.lifecycle.test_alert_fold import NOON
from tests.api.desk import Desk
from tests.console.story import CASE, IP, MINUTE, A, B

INSTANT = "%Y-%m-%dT%H:%M:%SZ"

DAY = f"since={NOON - timedelta(hours=1):{INSTANT}}&until={NOON + timedelta(hours=2):{INSTANT}}"


def places(desk: Desk) -> dict[str, str]:
    """Paths by name."""
    ids = alert_ids(desk)
    alert, bundled = ids["SSH login succeeded after guessing"], ids["DNS tunnel"]
    gather_evidence(desk, bundled)
    return {
        "overview": "/",
        "alerts": "/alerts",
        "alerts-by-device": "/alerts?group=entity",
        "alert-beside": f"/alerts?open={alert}",
        "alert": f"/alerts/{alert}",
        "cases": "/cases",
        "case": f"/cases/{CASE}",
        "evidence": f"/alerts/{bundled}#evidence",
        "proposals": "/proposals",
        "device": f"/entity/mac/{B}",
        "device-then": f"/entity/mac/{A}?known_by={NOON + 30 * MINUTE:{INSTANT}}",
        "address": f"/entity/ip/{IP}",
        "user": f"/entity/user/root?{DAY}",
        "search": f"/search?{DAY}",
        "search-sql": "/search?sql=SELECT+source,+count(*)+AS+n%0AFROM+silver.events+GROUP+BY"
        "+source+ORDER+BY+n+DESC",
        "event": f"/events/login-2:0?time={NOON + MINUTE:{INSTANT}}",
        "rules": "/rules",
        "rule": "/rules/http_path_traversal",
        "rule-less-noise": "/rules/http_path_traversal/tuning",
        "rule-in-shadow": "/rules/http_attack_tool/shadow",
        "rule-editor": "/rule-editor?copy=ssh_login_failed",
        "sources": "/sources",
        "dead-letters": f"/sources/dead?since={NOON:%Y-%m-%d}",
        "reports": "/reports",
        "report-wanted": "/reports?make=1",
        "admin": "/admin",
        "sessions": "/admin?tab=sessions",
        "suppressions": "/admin?tab=suppressions",
        "audit": f"/admin?tab=audit&since={NOON:%Y-%m-%d}",
    }


def gather_evidence(desk: Desk, alert: str) -> None:
    """Have a bundle made, as who the pages are shown to."""
    asked, wait = {"alerts": [alert]}, {"wait_seconds": 20}
    job = desk.client().post("/api/v1/evidence/jobs", json=asked, params=wait).json()
    assert job["state"] == "done", job


def alert_ids(desk: Desk) -> dict[str, str]:
    """Alerts by the title of their rule, one of each."""
    listed = desk.client().get("/api/v1/alerts", params={"limit": 500}).json()["items"]
    return {str(row["rule_name"]): str(row["alert_id"]) for row in listed}


def alert_id(desk: Desk, rule_name: str) -> str:
    """The alert of a rule."""
    return alert_ids(desk)[rule_name]
