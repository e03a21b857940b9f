"""Each test of a fault may do to its broker what it likes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.kafka import Broker, free_port


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    running = Broker(tmp_path / "kafka", free_port()).start()
    yield running
    running.stop()
