"""The questions of `bench.adhoc` asked of ClickHouse, over the same Parquet files.

It is beside them where its package can be imported (`pip install chdb-core`, 180 MB: no dependency
of ours). The files are not loaded into tables of its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_DAY = (
    "time >= toDateTime64('2026-11-18 00:00:00', 6, 'UTC') "
    "AND time < toDateTime64('2026-11-19 00:00:00', 6, 'UTC')"
)
_SECOND = "toInt64(toUnixTimestamp({}))"
_HOUR = _SECOND.format("toStartOfHour(time)")


def _of_address(address: str) -> str:
    return (
        f"SELECT {_SECOND.format('time')} AS t, class_uid, dst_ip FROM event "
        f"WHERE src_ip = '{address}' AND {_DAY} ORDER BY 1, 2, 3"
    )


SQL = {
    "an address and a day": _of_address("10.0.7.9"),
    "an address in no file, and a day": _of_address("10.1.7.9"),
    "a user and a day": "SELECT class_uid, status_id, count() AS n FROM event "
    f"WHERE user_name = 'user-77' AND {_DAY} GROUP BY 1, 2 ORDER BY 1, 2",
    "events a day": "SELECT toString(toDate(time)) AS d, count() AS n FROM event "
    "GROUP BY 1 ORDER BY 1",
    "hourly histogram of the week": f"SELECT {_HOUR} AS h, count() AS n FROM event "
    "GROUP BY 1 ORDER BY 1",
    "hourly histogram by class": f"SELECT {_HOUR} AS h, class_name, count() AS n FROM event "
    "GROUP BY 1, 2 ORDER BY 1, 2",
    "distinct addresses a day": "SELECT toString(toDate(time)) AS d, uniqExact(src_ip) AS n "
    "FROM event GROUP BY 1 ORDER BY 1",
    "the 20 busiest addresses": "SELECT src_ip, count() AS n FROM event GROUP BY 1 "
    "ORDER BY 2 DESC, 1 LIMIT 20",
    "failures by user": "SELECT user_name, count() AS n FROM event "
    "WHERE class_uid = 3002 AND status_id = 2 GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 20",
    "where addresses were first seen": f"SELECT src_ip, {_SECOND.format('min(time)')} AS t "
    "FROM event GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 20",
    "a text anywhere": "SELECT source, count() AS n FROM event WHERE message LIKE '%needle%' "
    "GROUP BY 1 ORDER BY 1",
}
"""By the names of `bench.adhoc`."""


def installed() -> bool:
    """Whether ClickHouse can be asked here."""
    return find_spec("chdb") is not None


class ClickHouse:
    """One session over some files. `folder`: an empty one, for links to these."""

    def __init__(self, files: Sequence[Path], folder: Path) -> None:
        for number, file in enumerate(files):
            (folder / f"{number}.parquet").symlink_to(file)
        self._session: Any = import_module("chdb.session").Session()
        self._session.query("SET session_timezone = 'UTC'")
        self._session.query("SET output_format_json_quote_64bit_integers = 0")
        self._session.query(f"CREATE VIEW event AS SELECT * FROM file('{folder}/*.parquet')")

    @property
    def version(self) -> str:
        """Of ClickHouse."""
        ((version,),) = self.rows("SELECT version()")
        return str(version)

    def rows(self, sql: str) -> list[list[Any]]:
        """What a statement answers."""
        data: list[list[Any]] = json.loads(str(self._session.query(sql, "JSONCompact")))["data"]
        return data

    def close(self) -> None:
        """End the session."""
        self._session.close()
