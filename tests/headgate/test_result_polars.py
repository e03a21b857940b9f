"""A result as a polars DataFrame, where polars is installed.

With its 180 MB it is in no lock file. In an environment of its own: `pip install headgate polars
pytest`, then this file.
"""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.util import find_spec

import pytest

from headgate.result import result_of
from infra.errors import Usage

ROWS = [
    {
        "device": "tab-0417",
        "seen": datetime(2026, 11, 20, 9, tzinfo=UTC),
        "alerts": 2,
        "ips": ["a"],
    },
    {"device": None, "seen": None, "alerts": 0, "ips": []},
]
polars_there = find_spec("polars") is not None


@pytest.mark.skipif(not polars_there, reason="in an environment of its own, as said above")
def test_a_frame_has_the_same_rows_and_instants_keep_their_zone() -> None:
    import polars

    frame = result_of(ROWS).polars()
    assert frame.to_dicts() == ROWS
    assert frame.schema["seen"].time_zone == "UTC"
    assert frame.filter(polars.col("alerts") > 1)["device"].to_list() == ["tab-0417"]
    assert result_of([], ["device"]).polars().columns == ["device"]


@pytest.mark.skipif(polars_there, reason="it is installed")
def test_without_polars_it_is_said_what_else_there_is() -> None:
    with pytest.raises(Usage, match=r"polars is not installed; install it, or take \.pandas"):
        result_of(ROWS).polars()
