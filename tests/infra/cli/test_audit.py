"""`headgate audit`: the driver's rows hold, and a row that a later hand changed is named."""

from __future__ import annotations

import argparse

import pytest

from infra.cli.audit import build
from infra.config.settings import Settings
from infra.delta.ops_tables import AUDIT
from infra.errors import Fatal
from infra.runtime.outbox_flusher import flush_outbox
from infra.streaming.lake import Lake
from infra.streaming.outbox import note_audit


def run(settings: Settings, *words: str) -> int:
    parser = argparse.ArgumentParser()
    build(parser.add_subparsers())
    arguments = parser.parse_args(["audit", *words])
    code: int = arguments.run(arguments, settings)
    return code


@pytest.mark.full
def test_a_changed_row_of_the_audit_is_named(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = lake.settings
    for act in ("rule.disable", "rule.enable", "key.make"):
        note_audit(lake.spool, act, "ssh_login", {"why": f"\ud800 {act}"})
        assert flush_outbox(lake, AUDIT, lake.spool / "audit") == 1
    assert run(settings, "head") == 0
    digest = capsys.readouterr().out.split()[0]
    assert run(settings, "verify", "--digest", digest) == 0
    assert capsys.readouterr().out == "3 links hold\n"
    with pytest.raises(Fatal, match="no link has the digest feed"):
        run(settings, "verify", "--digest", "feed")

    table = f"delta.`{lake.path(AUDIT)}`"
    lake.spark.sql(f"UPDATE {table} SET who = 'nobody' WHERE act = 'rule.enable'")
    with pytest.raises(Fatal, match=r"link 2 of chain .* was changed"):
        run(settings, "verify")
    lake.spark.sql(f"DELETE FROM {table} WHERE act <> 'rule.disable'")
    with pytest.raises(Fatal, match=r"link 2 of chain .* is missing at the end"):
        run(settings, "verify")
