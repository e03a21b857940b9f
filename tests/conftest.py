"""Fixtures: one Spark session, a fresh lake a test, brokers."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from pyspark.sql import SparkSession

import headgate.packages  # noqa: F401  makes tables, jobs and commands known
from infra.config.settings import Settings, load
from infra.delta import duckdb_views
from infra.kafka.client import Broker, free_port
from infra.process import priority
from infra.spark.session import session
from infra.streaming.lake import Lake
from tests.api.story import tell
from tests.bucket.store import Store, serve
from tests.examples import PROFILES


@pytest.fixture(autouse=True)
def same_environment() -> Iterator[None]:
    """What a command in a test's own process left there, as `--config` does, is taken back."""
    before = _of_headgate()
    yield
    for name in _of_headgate().keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


def _of_headgate() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("HEADGATE_")}


@pytest.fixture(scope="session")
def session_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def spark(session_home: Path) -> Iterator[SparkSession]:
    # As jobs have it: batches are as small here, and compiling code for them costs a quarter more.
    settings = load(home=session_home, spark={"driver_memory": "2g"})
    running = session(settings, "tests", small_batches=True)
    yield running
    running.stop()


def made_once(
    tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]
) -> Path:
    """A home that the first of the workers to ask for it makes; the others wait, and look at it."""
    run = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        run = run.parent
    home, whole = run / name, run / f"{name}.whole"
    with (run / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not whole.exists():
            shutil.rmtree(home, ignore_errors=True)  # a worker that was killed left a part of it
            make(home)
            whole.touch()
    return home


@pytest.fixture(scope="session")
def empty_tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with all tables and no rows, made once: a copy of it is a fresh lake."""
    home = made_once(tmp_path_factory, "empty", lambda at: Lake(spark, load(home=at)).ensure())
    return home / "lake"


@pytest.fixture(scope="session")
def day_tables(
    spark: SparkSession, empty_tables: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A lake with the day of tests/api/story.py, made once, to be copied."""

    def make(home: Path) -> None:
        shutil.copytree(empty_tables, home / "lake")
        tell(Lake(spark, load(home=home)))

    return made_once(tmp_path_factory, "day", make) / "lake"


@pytest.fixture
def settings(tmp_path: Path, empty_tables: Path) -> Settings:
    shutil.copytree(empty_tables, tmp_path / "lake")
    return load(home=tmp_path)


@pytest.fixture
def lake(spark: SparkSession, settings: Settings) -> Lake:
    return Lake(spark, settings)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    running = Broker(tmp_path_factory.mktemp("kafka"), free_port()).start()
    yield running
    running.stop()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker to which a test may do what it likes."""
    running = Broker(tmp_path / "kafka", free_port()).start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """An object store with an empty bucket."""
    with serve(tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture
def store(served: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The store, as this process's environment names it."""
    for name, value in served.environment.items():
        monkeypatch.setenv(name, value)
    return served


# What one worker of the suite needs at most: a session, a broker, and a driver with its workers.
WORKER_BYTES = 7 << 30
LONGEST_FIRST = ("recovery", "faults", "e2e", "cluster")


def pytest_xdist_auto_num_workers() -> int:
    """Two workers where cores and memory allow; each has a session and a broker of its own."""
    room = psutil.virtual_memory().available // WORKER_BYTES
    return 2 if min(os.cpu_count() or 1, room) >= 2 else 0


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first in both halves of the tests.

    Each worker begins with a half and takes from the end of the other's when its own is done. The
    halves are cut in a quick file: one cut in two would have its platform started twice.
    """
    rank = {folder: place for place, folder in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: rank.get(item.path.parent.name, len(rank)))
    places = {path: place for place, path in enumerate(dict.fromkeys(item.path for item in items))}
    first = [item for item in items if places[item.path] % 2 == 0]
    second = [item for item in items if places[item.path] % 2]
    middle = len(items) // 2
    first, spare = first[:middle], first[middle:]
    missing = middle - len(first)
    items[:] = first + second[len(second) - missing :] + second[: len(second) - missing] + spare


TOO_LATE = "no time was left for it; `make test-full` runs it"


LONG_SECONDS = 900
"""What tests take, on a slow machine, that have a timeout of their own."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A machine that ends a run after some time has what did not begin told, not nothing at all."""
    end = float(os.environ.get("HEADGATE_TESTS_UNTIL", "inf"))
    if item.get_closest_marker("timeout"):
        end -= LONG_SECONDS
    if time.time() > end:
        pytest.skip(TOO_LATE)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the tests for which no time was left."""
    skipped = terminalreporter.stats.get("skipped", [])
    late = [report.nodeid for report in skipped if TOO_LATE in str(report.longrepr)]
    if late:
        terminalreporter.section(f"{len(late)} tests did not run: {TOO_LATE}")
        terminalreporter.write_line("\n".join(sorted(late)))


# As in the Makefile, for runs without it: some shells of containers set it, and then each worker of
# the tests, and each process that they start, would compile all of our code again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

if "PYTEST_XDIST_WORKER" in os.environ:
    # PySpark takes a process without a main file for its own doctests, and ends it.
    sys.modules["__main__"].__file__ = pytest.__file__

# Commands that take their time lower their own priority. Called inside a worker they would lower
# that of all its tests, with their platforms, and only root can raise it again.
os.nice = lambda increment: 0
priority.lower_session = lambda nice: None
# Platforms of tests share the machine with other tests, and are waited for.
os.environ.setdefault("HEADGATE_API__NICE", "0")

# DuckDB checks the signature of an extension for each engine: of the 80 MB of Delta's most of a
# second of CPU, and tests open hundreds. The processes that they start check it as ever.
duckdb_views._CONFIG["allow_unsigned_extensions"] = True

Drain = Callable[..., None]
os.environ.setdefault("HEADGATE_CONFIG", "")

# How long an example takes, or is made, says something about the machine, not about what is tested.
for name, count in PROFILES.items():
    hypothesis_settings.register_profile(
        name,
        deadline=None,
        max_examples=count,
        suppress_health_check=[HealthCheck.too_slow],
    )
hypothesis_settings.load_profile("quick")
