"""`HeadgateDriver`: msticpy asks a lake in Spark SQL.

    import headgate.msticpy.driver
    from msticpy.data import QueryProvider

    lake = QueryProvider("Headgate")
    lake.connect("https://headgate.example.org", token_file="/home/ann/headgate.key")
    lake.exec_query("SELECT * FROM gold.alert WHERE level = :level", params={"level": "high"})

msticpy comes with the extra `msticpy` (`pip install headgate[msticpy]`).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msticpy.data.drivers import CUSTOM_PROVIDERS, DriverBase
from msticpy.data.drivers.driver_base import DriverProps

from headgate.msticpy.remote_lake import RemoteLake
from infra.errors import Usage

if TYPE_CHECKING:
    import pandas as pd

DATA_ENVIRONMENT = "Headgate"


class HeadgateDriver(DriverBase):  # type: ignore[misc]  # msticpy is installed by who wants it
    """Asks with one key over REST; limits, audit and refusals are those of the API."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._lake: RemoteLake | None = None
        self._loaded = True
        self.set_driver_property(
            DriverProps.FORMATTERS, {"datetime": spark_instant, "list": spark_list}
        )

    def connect(self, connection_str: str | None = None, **kwargs: Any) -> None:
        """Connect to the API at `connection_str`, such as https://headgate.example.org.

        `token` or `token_file`: a key of role viewer; `ca_file`: who signs the certificate, where
        not a public authority. What is not given comes from `DataProviders: Headgate: Args` of
        msticpyconfig.yaml (`url` there for the address).
        """
        given = {**self._get_config_settings(DATA_ENVIRONMENT), **kwargs}
        url, token = connection_str or given.get("url"), given.get("token")
        if not url:
            raise Usage("no address: connect('https://HOST:PORT', token_file=...)")
        if token is None and given.get("token_file"):
            token = Path(given["token_file"]).read_text("ascii").strip()
        lake = RemoteLake(str(url), str(token or ""), given.get("ca_file"))
        # A key that is not known is told here, and not with the first question.
        self._schema = lake.tables()
        self._lake, self._connected = lake, True

    @property
    def schema(self) -> dict[str, dict[str, str]]:
        """Tables and views with their columns and types, as they were when it connected."""
        return dict(self._schema) if self._connected else {}

    def query(self, query: str, query_source: Any = None, **kwargs: Any) -> pd.DataFrame:
        """The rows of one SELECT; `params`, `as_of` and `max_rows` as over REST."""
        return self.query_with_results(query, **kwargs)[0]

    def query_with_results(self, query: str, **kwargs: Any) -> tuple[pd.DataFrame, Any]:
        """The rows, and the answer of the API with engine and versions."""
        if self._lake is None:
            raise Usage("not connected; connect('https://HOST:PORT', token_file=...) first")
        taken = {name: kwargs[name] for name in ("params", "as_of", "max_rows") if name in kwargs}
        return self._lake.ask(query, **taken)


def spark_instant(value: datetime) -> str:
    """An instant as Spark SQL writes it, in UTC; one without a zone is taken for UTC."""
    aware = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return f"TIMESTAMP '{aware:%Y-%m-%d %H:%M:%S.%f}'"


def spark_list(values: Iterable[Any]) -> str:
    """Values for `IN (...)`; a quote within a text is written so that it ends nothing."""
    return ", ".join(
        str(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool)
        else "'" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'"
        for value in values
    )


CUSTOM_PROVIDERS[DATA_ENVIRONMENT] = HeadgateDriver
