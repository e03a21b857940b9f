"""An hour in which nothing came is checked without the library, and comes out the same."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pandas as pd
import pytest

from ingest.quality import validate as validate_module
from ingest.quality.measurements import Written
from ingest.quality.source_silence import Silence
from ingest.quality.suites import suites
from ingest.quality.validate import check, is_quiet, validate

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
QUIET = Written(
    pd.DataFrame(),
    pd.DataFrame({"rows": []}),
    pd.DataFrame({"source": ["sshd"], "now": [0], "before": [3], "ratio": [None]}),
    (
        Silence("sshd", AT, 60.0, 60.0, 600.0, "fine"),
        Silence("zeek:dns", AT, 600.0, 600.0, 600.0, "fine"),
        Silence("new", AT, 7200.0, 0.0, None, "no habit yet"),
    ),
    AT,
    AT,
)


def test_a_quiet_hour_begins_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate_module, "validate", None)
    monkeypatch.setattr(validate_module, "suites", None)
    (outcome,) = check(QUIET, expect_some=False)
    assert (outcome.name, outcome.passed, outcome.checked) == (
        "freshness: no source is silent for longer than it ever was", True, 2,
    )  # fmt: skip


@pytest.mark.full
def test_it_comes_out_as_the_library_has_it() -> None:
    assert check(QUIET, expect_some=False) == list(validate(list(suites(QUIET))))


def test_what_may_fail_is_no_quiet_hour() -> None:
    assert is_quiet(QUIET)
    assert not is_quiet(replace(QUIET, shares=pd.DataFrame({"rows": [1]})))
    assert not is_quiet(replace(QUIET, silences=()))
    broken = replace(QUIET.silences[0], seconds=601.0)
    assert not is_quiet(replace(QUIET, silences=(*QUIET.silences, broken)))
    volumes = QUIET.volumes.assign(ratio=[0.0]) if QUIET.volumes is not None else None
    assert not is_quiet(replace(QUIET, volumes=volumes))
    assert is_quiet(replace(QUIET, volumes=None))
