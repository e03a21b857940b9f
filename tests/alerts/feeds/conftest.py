"""A TAXII server for all tests of feeds; each test has a collection of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.alerts.feeds.taxii_server import TaxiiServer


@pytest.fixture(scope="package")
def running_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TaxiiServer]:
    started = TaxiiServer(tmp_path_factory.mktemp("taxii"), page=3)
    yield started
    started.stop()


@pytest.fixture
def server(running_server: TaxiiServer) -> TaxiiServer:
    running_server.renew()
    return running_server
