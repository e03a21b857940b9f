"""Every route of the API and of the console, asked in every role."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.auth import Caller
from api.console.session import COOKIE
from infra.config.settings import load
from tests.full import rest_full

# Least role of each operation. A route that is not in here fails the test below.
LEAST = {
    "open": {"GET /healthz", "GET /readyz"},
    "metrics": {"GET /metrics", "GET /api/v1/openapi.json"},
    "analyst": {
        "POST /api/v1/reports",
        "DELETE /api/v1/reports/runs/{run_id}",
        "DELETE /api/v1/reports/scheduled/failures/{name}",
        "PUT /api/v1/queries/{name}",
        "DELETE /api/v1/queries/{name}",
        "POST /api/v1/cases",
        "PATCH /api/v1/cases/{case_id}",
        "POST /api/v1/cases/{case_id}/alerts",
        "DELETE /api/v1/cases/{case_id}/alerts/{alert_id}",
        "POST /api/v1/cases/{case_id}/merge",
        "POST /api/v1/cases/{case_id}/notes",
        "GET /api/v1/cases/{case_id}/evidence",
        "POST /api/v1/evidence/jobs",
        "GET /api/v1/evidence/jobs",
        "GET /api/v1/evidence/jobs/{job_id}",
        "GET /api/v1/evidence/jobs/{job_id}/stream",
        "GET /api/v1/evidence/jobs/{job_id}/results",
        "DELETE /api/v1/evidence/jobs/{job_id}",
        "GET /api/v1/cases/{case_id}/stix",
        "GET /api/v1/alerts/{alert_id}/stix",
        "PATCH /api/v1/alerts/{alert_id}",
        "POST /api/v1/alerts/bulk",
        "POST /api/v1/alerts/bulk/preview",
        "GET /api/v1/alerts/{alert_id}/notes",
        "POST /api/v1/alerts/{alert_id}/notes",
        "GET /api/v1/acts",
        "GET /api/v1/acts/{act_id}",
        "POST /api/v1/acts/{act_id}/undo",
        "POST /api/v1/suppressions",
        "DELETE /api/v1/suppressions/{suppression_id}",
    },
    "viewer": {
        "POST /api/v1/queries/{name}/run",
        "POST /api/v1/rule-jobs",
        "GET /api/v1/rule-jobs",
        "GET /api/v1/rule-jobs/{job_id}",
        "GET /api/v1/rule-jobs/{job_id}/stream",
        "GET /api/v1/rule-jobs/{job_id}/results",
        "DELETE /api/v1/rule-jobs/{job_id}",
        "POST /api/v1/search/jobs",
        "GET /api/v1/search/jobs",
        "GET /api/v1/search/jobs/{job_id}",
        "GET /api/v1/search/jobs/{job_id}/stream",
        "GET /api/v1/search/jobs/{job_id}/results",
        "DELETE /api/v1/search/jobs/{job_id}",
        "POST /api/v1/statements",
        "POST /api/v1/rules/{rule}/preview",
        "GET /api/v1/rule-scorecard",
        "GET /api/v1/rule-shadows",
        "GET /api/v1/rules/{rule}/proposals",
        "GET /api/v1/rules/scorecard",
    },
    "engineer": {
        "POST /api/v1/rules",
        "PUT /api/v1/rules/{rule}",
        "DELETE /api/v1/rules/{rule}",
        "POST /api/v1/rules/draft",
        "POST /api/v1/rules/{rule}/filters",
        "DELETE /api/v1/rules/{rule}/filters/{filter_id}",
        "POST /api/v1/rules/{rule}/threshold",
        "POST /api/v1/rules/{rule}/enable",
        "POST /api/v1/rules/{rule}/disable",
        "POST /api/v1/rules/{rule}/shadow",
        "POST /api/v1/rules/{rule}/promote",
        "POST /api/v1/rules/{rule}/drop",
        "POST /api/v1/rule-packs/{pack}/import",
        "POST /api/v1/rule-packs/{pack}/import/preview",
        "POST /api/v1/rule-packs/{pack}/rollback",
        "POST /api/v1/rule-packs/{pack}/rollback/preview",
        "POST /api/v1/rule-switches",
        "POST /api/v1/rule-switches/preview",
        "PUT /api/v1/indicators/{name}",
        "DELETE /api/v1/indicators/{name}",
        "POST /api/v1/indicators/{name}/entries",
        "DELETE /api/v1/indicators/{name}/entries",
        "POST /api/v1/indicators/{name}/expire",
        "POST /api/v1/inventories/{register}/loads",
        "POST /api/v1/webhooks/{name}/test",
        "POST /api/v1/webhooks/{name}/retry",
    },
    "read": {
        "GET /api/v1/asyncapi.json",
        "GET /api/v1/alerts",
        "GET /api/v1/alerts/stream",
        "GET /api/v1/alerts/{alert_id}",
        "GET /api/v1/alerts/{alert_id}/explain",
        "GET /api/v1/reports",
        "GET /api/v1/reports/{name}",
        "GET /api/v1/reports/kinds",
        "GET /api/v1/reports/runs",
        "GET /api/v1/reports/scheduled",
        "GET /api/v1/reports/runs/{run_id}",
        "GET /api/v1/reports/runs/{run_id}/stream",
        "GET /api/v1/indicators",
        "GET /api/v1/indicators/{name}",
        "GET /api/v1/indicators/{name}/entries",
        "GET /api/v1/inventories/loads",
        "GET /api/v1/inventories/loads/{load_id}",
        "GET /api/v1/inventories/loads/{load_id}/stream",
        "GET /api/v1/inventories/{register}",
        "GET /api/v1/webhooks",
        "GET /api/v1/webhooks/deliveries",
        "GET /api/v1/webhooks/{name}",
        "GET /api/v1/queries",
        "GET /api/v1/queries/{name}",
        "GET /api/v1/cases",
        "GET /api/v1/cases/{case_id}",
        "GET /api/v1/suppressions",
        "GET /api/v1/suppressions/{suppression_id}",
        "POST /api/v1/suppressions/preview",
        "GET /api/v1/proposals",
        "POST /api/v1/proposals",
        "GET /api/v1/incidents",
        "GET /api/v1/incidents/{incident_id}",
        "GET /api/v1/leases",
        "GET /api/v1/events/attributed",
        "GET /api/v1/entities",
        "GET /api/v1/entities/{type}/{value}",
        "GET /api/v1/entities/{type}/{value}/witnesses",
        "GET /api/v1/entities/{type}/{value}/inventory",
        "GET /api/v1/tables",
        "GET /api/v1/rules",
        "GET /api/v1/rule-packs",
        "GET /api/v1/rule-packs/{pack}/versions",
        "GET /api/v1/rules/{rule}",
        "GET /api/v1/rules/{rule}/filters",
        "GET /api/v1/rules/{rule}/versions",
        "GET /api/v1/rules/{rule}/versions/{version}",
        "POST /api/v1/rules/{rule}/test",
    },
    "admin": {
        "GET /api/v1/keys",
        "POST /api/v1/keys",
        "POST /api/v1/keys/{name}/rotate",
        "DELETE /api/v1/keys/{name}",
    },
}
PAGES = {
    "open": {
        "GET /login",
        "POST /login",
        "GET /login/{code}",
        "GET /oidc/begin",
        "GET /oidc/back",
        "GET /oidc/end",
    },
    "read": {
        "GET /",
        "GET /alerts",
        "GET /alerts.csv",
        "GET /alerts/live",
        "POST /alert-views",
        "POST /alert-views/remove",
        "GET /alerts/{alert_id}",
        "GET /alerts/act/silence",
        "GET /cases",
        "GET /cases/{case_id}",
        "GET /incidents/{incident_id}",
        "GET /entity",
        "GET /entity/{kind}/{value:path}",
        "GET /events/{uid:path}",
        "GET /proposals",
        "GET /reports",
        "GET /reports/file/{name}",
        "GET /rules",
        "GET /rules/{rule_id}",
        "GET /rule-packs/{pack}",
        "GET /rules/{rule_id}/versions/{version}",
        "GET /search",
        "GET /search/export.{form}",
        "GET /sources",
        "GET /sources/dead",
        "POST /logout",
    },
    "viewer": {
        "GET /search?sql=SELECT+1",
        "POST /search/runs",
        "GET /search/runs/{job_id}",
        "GET /search/runs/{job_id}/rows.{form}",
        "POST /search/runs/{job_id}/end",
        "GET /search/queries/{name}",
        "POST /search/queries/{name}/run",
        "POST /rule-tries",
        "GET /rule-tries/{job_id}",
        "GET /rules/{rule_id}/tuning",
        "GET /rules/{rule_id}/shadow",
        "POST /rule-tries/{job_id}/end",
    },
    "analyst": {
        "POST /proposals/{proposal_id}/confirm",
        "POST /proposals/{proposal_id}/reject",
        "POST /search/queries",
        "POST /reports",
        "POST /reports/dismiss",
        "POST /reports/runs/{run_id}/end",
        "POST /search/queries/{name}/remove",
        "GET /cases/add",
        "GET /cases/{case_id}/evidence",
        "POST /evidence",
        "GET /evidence/{job_id}",
        "GET /evidence/{job_id}/file",
        "POST /evidence/{job_id}/end",
        "POST /cases",
        "POST /cases/{case_id}/change",
        "POST /cases/{case_id}/merge",
        "POST /cases/{case_id}/unlink",
        "GET /alerts/act/close",
        "POST /alerts/act/close",
        "POST /alerts/act/note",
        "POST /alerts/act/reopen",
        "POST /alerts/act/take",
        "POST /alerts/act/undo/{act_id}",
    },
    "engineer": {
        "POST /rules/{rule_id}/switch",
        "POST /rules/{rule_id}/rollout",
        "POST /rule-packs/{pack}/rollback",
        "POST /rules/{rule_id}/tuning/filter",
        "POST /rules/{rule_id}/tuning/filter/end",
        "POST /rules/{rule_id}/tuning/threshold",
        "GET /rule-editor",
        "POST /rule-editor",
        "POST /rule-editor/check",
        "POST /rule-editor/diff",
    },
    "admin": {
        "GET /admin",
        "POST /admin/keys",
        "POST /admin/keys/{name}/end",
        "POST /admin/keys/{name}/rotate",
        "POST /admin/sessions/{session_id}/end",
        "POST /admin/suppressions/{suppression_id}/end",
        "POST /admin/users",
        "POST /admin/users/{name}/end",
        "POST /jobs/{job}/resume",
        "GET /sources/gaps",
        "POST /sources/gaps",
    },
}
ROLES = ["metrics", "read", "viewer", "analyst", "engineer", "admin"]
PARTS = ("act_id", "alert_id", "case_id", "code", "filter_id", "form", "incident_id", "job",
         "job_id", "load_id", "name", "pack", "proposal_id", "register", "rule", "rule_id",
         "run_id", "session_id", "suppression_id", "version")  # fmt: skip
FILLED = dict.fromkeys(PARTS, "x") | {
    "type": "ip",
    "kind": "ip",
    "value": "10.0.0.1",
    "uid": "x",
}


@pytest.mark.parametrize("may", rest_full(1, [False, True]), ids=["may not", "may"])
def test_each_role_sees_and_may_what_is_declared_route_by_route_and_no_more(
    tmp_path: Path, may: bool
) -> None:
    home = load(home=tmp_path, api={"token": "the-token-of-the-api"})
    app = create_app(home)
    client = TestClient(app, raise_server_exceptions=False, follow_redirects=False)
    credentials, sessions = app.state.services.access.credentials, app.state.console.sessions
    tokens = {role: credentials.add_key(f"key-{role}", role)[1] for role in ROLES}
    described = {
        f"{method.upper()} {path}"
        for path, operations in app.openapi()["paths"].items()
        for method in operations
    }
    assert described == set().union(*LEAST.values()), "each operation has its least role here"
    routes = {
        f"{method} {route.path}"
        for page in app.state.console.pages
        for route in page.router.routes
        for method in route.methods
    }
    declared = {
        operation for names in PAGES.values() for operation in names if "?" not in operation
    }
    assert routes == declared, "each route of a page has its least role here"

    def refused_over_rest(method: str, path: str, role: str) -> bool:
        headers = {"Authorization": f"Bearer {tokens[role]}"}
        return bool(client.request(method, path, headers=headers).status_code == 403)

    def refused_on_the_page(method: str, path: str, role: str) -> bool:
        caller = app.state.services.access.caller(tokens[role])
        assert isinstance(caller, Caller)
        cookie = sessions.begin(caller)
        form = {"csrf": sessions.of(cookie).csrf} if method == "POST" else None
        headers = {"Cookie": f"{COOKIE}={cookie}"}
        return bool(client.request(method, path, data=form, headers=headers).status_code == 403)

    with client:  # one event loop for all requests, of which there are a thousand
        for least_roles, refused in ((LEAST, refused_over_rest), (PAGES, refused_on_the_page)):
            stranger = 401 if refused is refused_over_rest else 303
            for least, operations in least_roles.items():
                for operation in sorted(operations):
                    method, path = operation.replace(":path", "").split()
                    path = path.format(**FILLED)
                    if least == "open":
                        continue
                    assert client.request(method, path).status_code == stranger, operation
                    # The roles beside the edge: each may what those before it may.
                    edge = ROLES.index(least)
                    for role in {*ROLES[max(edge - 1, 0) : edge + 1], ROLES[0], ROLES[-1]}:
                        # What a role may do is done, which takes longer than to be refused.
                        if (ROLES.index(role) >= edge) is may:
                            assert refused(method, path, role) is not may, (operation, role)
