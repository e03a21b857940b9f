"""What the inventories know of whom an alert is about, put into the alert before it is written.

After the state, so that the state stays small and a new inventory counts from the next batch on:
an alert says what was true when its newest event happened, by the inventories that its batch
decided on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from alerts.domain.entity import micros
from enrich.assets.index import AssetIndex
from enrich.assets.registers import CRITICALITIES

Row = dict[str, Any]

RAISED = {"high": 5, "critical": 10}
"""How much the risk of an alert rises with the most critical asset or user it names."""


def in_context(row: Row, index: AssetIndex | None) -> Row:
    """A row of gold.alert whose body has `asset`, `other_assets` and `user`, and its risk.

    All of them empty where nothing is known; `index` None: no inventory was ever loaded.
    """
    body: Row = msgspec.json.decode(row["body"])
    found = _known(row, body, index) if index else _nothing()
    named = [found["asset"], *found["other_assets"], found["user"]]
    risk = raised(row["risk_score"], [one["criticality"] for one in named if one])
    body |= found | {"risk_score": risk}
    return row | {"risk_score": risk, "body": msgspec.json.encode(body).decode()}


def raised(risk: int, criticalities: list[str | None]) -> int:
    """A risk score, 0 to 100, raised by the highest of some criticalities."""
    known = [CRITICALITIES.index(one) for one in criticalities if one]
    highest = CRITICALITIES[max(known)] if known else ""
    return min(100, risk + RAISED.get(highest, 0))


def _nothing() -> Row:
    return {"asset": None, "other_assets": [], "user": None}


def _known(row: Row, body: Row, index: AssetIndex) -> Row:
    at = micros(row["event_time"])
    asset = _about(row, body, at, index)
    names = [one["value"] for one in body["entities"] if one["type"] == "user"]
    users = (index.user(at, name) for name in names)
    return {
        "asset": asset,
        "other_assets": list(_others(row, body, at, index, asset)),
        "user": next((user for user in users if user), None),
    }


def _about(row: Row, body: Row, at: int, index: AssetIndex) -> Row | None:
    """The asset behind the address, where DHCP proves whose it was by that; else the host."""
    told, entity = body["attribution"], body["entity"]
    leased = told["status"] == "leased"
    found = index.asset(
        at,
        mac=told["mac"] if leased else None,
        hostname=told["hostname"] if leased else None,
        ip=row["src_ip"] or (entity["value"] if entity["type"] == "ip" else None),
        scope=told["scope"],
        leased=leased,
    )
    if found is None and entity["type"] == "host":
        return index.asset(at, hostname=entity["value"])
    return found


def _others(row: Row, body: Row, at: int, index: AssetIndex, but: Row | None) -> Iterator[Row]:
    """Further hosts and addresses that the alert names, such as the one that was attacked."""
    seen = {(but["inventory"], but["asset_id"])} if but else set()
    for one in body["entities"]:
        kind, value = one["type"], one["value"]
        if kind not in ("host", "ip") or value == row["src_ip"]:
            continue
        key = {"hostname": value} if kind == "host" else {"ip": value}
        found = index.asset(at, **key, scope=body["attribution"]["scope"])
        if found is not None and (found["inventory"], found["asset_id"]) not in seen:
            seen.add((found["inventory"], found["asset_id"]))
            yield found | {"named": one}
