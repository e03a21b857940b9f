"""Assets and users as slowly changing tables: rows are appended, views give their spans."""

from __future__ import annotations

from infra.delta.schema import STRINGS, TS, B, Column, N, S, Table, View, struct

_VALIDITY = (
    Column("valid_from", TS, "since when this is true, UTC"),
    Column("gone", B, "true: from then on the inventory does not list it"),
)
_ORIGIN = (
    Column("more", S, "further columns of the inventory, as a JSON object", False),
    Column("loaded_at", TS, "when it was read; of two for one instant the later counts, UTC"),
    Column("file", S, "name of the file it was read from", False),
    Column("line", N, "line of that file", False),
)

ASSET_VERSION = Table(
    name="silver.asset_version",
    doc="What an inventory says of an asset from an instant on, until its next row. "
    "silver.asset_history has it with both ends.",
    columns=(
        Column("inventory", S, "which inventory says so"),
        Column("asset_id", S, "the asset's identity in that inventory"),
        *_VALIDITY,
        Column("name", S, "what people call it", False),
        Column("kind", S, "what it is: laptop, server, printer, ...", False),
        Column("owner", S, "who answers for it", False),
        Column("criticality", S, "low, medium, high or critical", False),
        Column("site", S, "where it stands", False),
        Column("scope", S, "DHCP scope its addresses belong to; null: any", False),
        Column("tags", STRINGS, "words to find it by", False),
        Column("macs", STRINGS, "hardware addresses, lower case, colons", False),
        Column("serial", S, "serial number", False),
        Column("hostnames", STRINGS, "host names, lower case", False),
        Column("ips", STRINGS, "fixed addresses and networks (10.1.0.0/16)", False),
        *_ORIGIN,
    ),
    event_time="valid_from",
    # With `loaded_at`: a later load may say something else of the same instant.
    key=("inventory", "asset_id", "valid_from", "loaded_at"),
    cluster_by=("asset_id",),
    stats=("inventory", "asset_id", "valid_from"),
)

USER_VERSION = Table(
    name="silver.user_version",
    doc="What an inventory says of a person from an instant on, until its next row. "
    "silver.user_history has it with both ends.",
    columns=(
        Column("inventory", S, "which inventory says so"),
        Column("user_id", S, "the person's identity in that inventory"),
        *_VALIDITY,
        Column("name", S, "account name", False),
        Column("full_name", S, "the person's name", False),
        Column("department", S, "department", False),
        Column("title", S, "position", False),
        Column("manager", S, "who the person reports to", False),
        Column("mail", S, "mail address", False),
        Column("site", S, "where the person works", False),
        Column("criticality", S, "low, medium, high or critical: what the accounts may do", False),
        Column("tags", STRINGS, "words to find the person by", False),
        Column(
            "aliases",
            STRINGS,
            "further accounts, lower case: DOMAIN\\user, mail, SID, local names",
            False,
        ),
        *_ORIGIN,
    ),
    event_time="valid_from",
    key=("inventory", "user_id", "valid_from", "loaded_at"),
    cluster_by=("user_id",),
    stats=("inventory", "user_id", "valid_from"),
)


def _slowly(name: str, table: Table, identity: str) -> tuple[View, View]:
    """The views of a slowly changing table: all that was ever true, and what is true now."""
    kind = name.removeprefix("silver.")
    # Spans are made when asked for: a list of the past that is loaded later then finds its place.
    history = View(
        f"{name}_history",
        f"Every {kind} of the inventories with the span in which this was true of it; "
        "valid_to is "
        "null while it still is",
        f"""
        SELECT * FROM (
          SELECT *, lead(valid_from) OVER (
                   PARTITION BY inventory, {identity} ORDER BY valid_from) AS valid_to
          FROM (
            SELECT *, row_number() OVER (
                     PARTITION BY inventory, {identity}, valid_from
                     ORDER BY loaded_at DESC, line DESC) AS nth
            FROM {table.name}
          ) said WHERE nth = 1
        ) spans WHERE NOT gone
        """,
    )
    now = View(
        name,
        f"Every {kind} that the inventories list now",
        f"SELECT * FROM {name}_history WHERE valid_from <= current_timestamp "
        "AND (valid_to IS NULL OR valid_to > current_timestamp)",
    )
    return history, now


ASSET_TABLES = (ASSET_VERSION, USER_VERSION)
ASSET_VIEWS = (
    *_slowly("silver.asset", ASSET_VERSION, "asset_id"),
    *_slowly("silver.user", USER_VERSION, "user_id"),
)

ASSET = struct(
    asset_id=S,
    inventory=S,
    name=S,
    kind=S,
    owner=S,
    criticality=S,
    site=S,
    tags=STRINGS,
    serial=S,
    matched_by=S,
)
"""An asset as it was at an instant. `matched_by`: mac, serial, hostname, ip or network."""

PERSON = struct(
    user_id=S,
    inventory=S,
    name=S,
    full_name=S,
    department=S,
    title=S,
    manager=S,
    mail=S,
    site=S,
    criticality=S,
    tags=STRINGS,
    matched_by=S,
)
"""A user of an inventory at an instant. `matched_by`: account (all of it) or name (the part
without its domain, where one person alone has it)."""
