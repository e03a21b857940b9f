"""What the inventories know of whom an alert is about, put into the alert before it is written.

After the state, so that the state stays small and a new inventory counts from the next batch on:
an alert says what was true when its newest event happened, by the inventories that its batch
decided on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from alerts.domain.entity import micros
from enrich.assets.index import AssetIndex
from enrich.assets.registers import CRITICALITIES

_Row = dict[str, Any]

RAISED = {"high": 5, "critical": 10}
"""How much the risk of an alert rises with the most critical asset or user it names."""


def in_context(row: _Row, index: AssetIndex | None) -> _Row:
    """A row of gold.alert whose body has `asset`, `other_assets` and `user`, and its risk.

    All of them empty where nothing is known; `index` None: no inventory was ever loaded. So is
    an alert of a tenant: inventories do not say whose an asset or a user is.
    """
    body: _Row = row["body"]
    known = _known(row, body, index) if index and row.get("tenant_uid") is None else _nothing()
    named = [known["asset"], *known["other_assets"], known["user"]]
    # The highest one, not the sum: a long list of assets is no graver than its gravest.
    risk = raised(row["risk_score"], [asset["criticality"] for asset in named if asset])
    return row | {"risk_score": risk, "body": body | known | {"risk_score": risk}}


def raised(risk: int, criticalities: list[str | None]) -> int:
    """A risk score, 0 to 100, raised by the highest of some criticalities."""
    known = [CRITICALITIES.index(criticality) for criticality in criticalities if criticality]
    highest = CRITICALITIES[max(known)] if known else ""
    return min(100, risk + RAISED.get(highest, 0))


def _nothing() -> _Row:
    return {"asset": None, "other_assets": [], "user": None}


def _known(row: _Row, body: _Row, index: AssetIndex) -> _Row:
    event_us = micros(row["event_time"])
    asset = _about(row, body, event_us, index)
    names = [entity["value"] for entity in body["entities"] if entity["type"] == "user"]
    users = (index.user(event_us, name) for name in names)
    return {
        "asset": asset,
        "other_assets": list(_others(row, body, event_us, index, asset)),
        "user": next((user for user in users if user), None),
    }


def _about(row: _Row, body: _Row, at: int, index: AssetIndex) -> _Row | None:
    """The asset behind the address, where DHCP proves whose it was by that; else the host."""
    message, entity = body["attribution"], body["entity"]
    leased = message["status"] == "leased"
    asset = index.asset(
        at,
        # Without a lease the device is only a guess; the address itself may still be known.
        mac=message["mac"] if leased else None,
        hostname=message["hostname"] if leased else None,
        ip=row["src_ip"] or (entity["value"] if entity["type"] == "ip" else None),
        scope=message["scope"],
        leased=leased,
    )
    if asset is None and entity["type"] == "host":
        return index.asset(at, hostname=entity["value"])
    return asset


def _others(row: _Row, body: _Row, at: int, index: AssetIndex, but: _Row | None) -> Iterator[_Row]:
    """Further hosts and addresses that the alert names, such as the one that was attacked."""
    seen = {(but["inventory"], but["asset_id"])} if but else set()
    for entity in body["entities"]:
        kind, value = entity["type"], entity["value"]
        # The source address is what `asset` is about already.
        if kind not in ("host", "ip") or value == row["src_ip"]:
            continue
        key = {"hostname": value} if kind == "host" else {"ip": value}
        asset = index.asset(at, **key, scope=body["attribution"]["scope"])
        if asset is not None and (asset["inventory"], asset["asset_id"]) not in seen:
            seen.add((asset["inventory"], asset["asset_id"]))
            yield asset | {"named": entity}
