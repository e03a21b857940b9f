"""Check Point's logs with what breaks them."""

from __future__ import annotations

import json

from tests.ingest.logs import good

HEAD = "<134>1 2026-03-02T09:00:01Z gw1 CheckPoint 1 - "


def test_spaces_behind_a_value_are_passed_once() -> None:
    # With a try for each cut of the spaces the test would not end today.
    spaces = " " * 500_000
    whole = good("checkpoint", f'{HEAD}[action:"Accept"; src:"10.0.0.5"{spaces}]{spaces}')
    assert whole["src_ip"] == "10.0.0.5"
    broken = good("checkpoint", f'{HEAD}[action:"Accept"; src:"10.0.0.5"{spaces}x]')
    assert broken.get("src_ip") is None
    assert json.loads(broken["unmapped"])["tail"] == f'src:"10.0.0.5"{spaces}x'
