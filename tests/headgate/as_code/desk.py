"""A home with something of every kind in force, made by the same functions as commands call."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from alerts.compiler.indicator_lists import ListStore
from alerts.delivery.action_request import request_action
from alerts.lifecycle.suppression import SUPPRESS
from alerts.rulebook.rule_store import recompile
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import PackStore
from api.services.searches.saved_queries import QueryStore
from api.wire.jobs import QueryContent
from infra.config.settings import Settings, load

ROOT_RULE = "5f2b3c1e-8e0a-4c39-9a43-0f6f0a1d2b01"
RULE = """title: Root login from the jump host
id: 5f2b3c1e-8e0a-4c39-9a43-0f6f0a1d2b01
name: own_root_login
# Kept as it is written.
status: experimental
level: medium
logsource: {product: linux, service: sshd}
detection:
  sel: {status_id: 1, User: root}
  condition: sel
headgate:
  tests:
    match: [{service.name: sshd, status_id: 1, user.name: root}]
    no_match: [{service.name: sshd, status_id: 1, user.name: ann}]
"""
LISTED = """title: Known bad domain
id: 5f2b3c1e-8e0a-4c39-9a43-0f6f0a1d2b02
name: own_bad_domain
level: high
headgate: {type: indicator, list: bad-domains}
"""
ENDS = (datetime.now(UTC) + timedelta(days=30)).replace(microsecond=0)


def made_home(path: Path) -> Settings:
    """Own rules, one of them off, a list, and a suppression that waits."""
    own = path / "own"
    (own / "team").mkdir(parents=True)
    (own / "team" / "root.yml").write_text(RULE)
    (own / "domains.yml").write_text(LISTED)
    settings = load(home=path / "home", alerts={"rules": (own,), "bundled": False})
    entries = path / "entries.txt"
    entries.write_text("evil.example  # seen in spring\n10.9.0.0/16\n")
    ListStore(store_folder(settings)).load("bad-domains", entries)
    PackStore(store_folder(settings)).disable(ROOT_RULE, "ann", "noisy")
    recompile(settings)
    request_action(
        settings,
        SUPPRESS,
        "f" * 32,
        ROOT_RULE,
        who="ann",
        value="ann",
        comment="pentest",
        entity="10.4.0.0/16",
        fields={"user.name": "svc-*"},
        expires_at=ENDS,
    )
    QueryStore(settings).put(
        "ann", "logins", QueryContent(sql="SELECT count(*) AS n FROM silver.event", doc="how many")
    )
    return settings


def files_of(folder: Path) -> dict[str, str]:
    """The files of an export."""
    return {
        file.relative_to(folder).as_posix(): file.read_text("utf-8")
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }
