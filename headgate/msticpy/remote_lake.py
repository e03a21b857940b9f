"""Statements and tables of a lake over its REST API, as pandas has them."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from infra.errors import Fatal, Retryable, Usage

if TYPE_CHECKING:  # pandas is slow to import, and a refusal needs none of it
    import pandas as pd

_SECONDS = 90.0
_LOOK_SECONDS = 1.0
_PAGE = 10_000
_NUMBERS = {"tinyint": "Int8", "smallint": "Int16", "int": "Int32", "bigint": "Int64",
            "float": "Float32", "double": "Float64", "boolean": "boolean"}  # fmt: skip


class RemoteLake:
    """One API and one key; what the key may not read, nobody reads here."""

    def __init__(self, url: str, token: str, ca_file: str | Path | None = None) -> None:
        """`ca_file`: who signs the API's certificate, where it is not a public authority.

        Raises `Usage` for an address that would carry the key in the clear over a network.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Usage(f"{url!r} is no address of the API: write https://HOST:PORT")
        if parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
            raise Usage(f"{url}: the key must not cross a network without TLS; write https://")
        if not token:
            raise Usage("no key: give token or token_file")
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"}
        self._verify: bool | str = True if ca_file is None else str(ca_file)

    def ask(
        self,
        sql: str,
        params: Mapping[str, Any] | None = None,
        as_of: str | None = None,
        max_rows: int | None = None,
    ) -> tuple[pd.DataFrame, dict[str, Any]]:
        """The rows of one SELECT, and the whole answer of the API with engine and versions.

        What takes longer goes on there as a search job and is waited for; interrupted, it ends.
        Warns where the answer was cut, and says so in the frame's `attrs`. Raises `Usage` with
        the API's sentence for a statement that it refuses.
        """
        asked = {"sql": sql, "params": dict(params or {}), "as_of": as_of, "max_rows": max_rows}
        answer = self._request("POST", "/api/v1/statements", asked)
        if "state" in answer:  # 202
            answer = self._of_job(answer, max_rows)
        frame = frame_of(answer["columns"], answer["rows"])
        frame.attrs = {name: answer[name] for name in ("engine", "truncated_by", "versions")}
        if answer["truncated"]:
            warnings.warn(
                f"cut after {len(answer['rows']):,} rows (limit: {answer['truncated_by']}); "
                "there are more",
                stacklevel=2,
            )
        return frame, answer

    def _of_job(self, job: dict[str, Any], max_rows: int | None) -> dict[str, Any]:
        """The answer of a statement that goes on as a job, once it is there: whole."""
        path = f"/api/v1/search/jobs/{job['id']}"
        try:
            while job["state"] in ("queued", "running"):
                time.sleep(_LOOK_SECONDS)
                job = self._request("GET", path, None)
        except BaseException:
            # Nobody else knows of it.
            with suppress(Exception):
                self._request("DELETE", path, None)
            raise
        if job["state"] != "done":
            raise Usage(str(job["problem"] or f"the statement {job['state']}"))
        rows: list[list[Any]] = []
        most, following = max_rows or int(job["rows"]), f"{path}/results?limit={_PAGE}"
        while len(rows) < most:
            page = self._request("GET", following, None)
            rows += page["rows"]
            if page["next"] is None:
                break
            following = f"{path}/results?limit={_PAGE}&cursor={quote(page['next'], safe='')}"
        cut = "rows" if most < int(job["rows"]) else None
        answer = {name: job[name] for name in ("columns", "elapsed_ms", "engine", "versions")}
        answer |= {"engine_reason": job["engine_reason"], "rows": rows[:most]}
        return answer | {"truncated": cut is not None, "truncated_by": cut}

    def tables(self) -> dict[str, dict[str, str]]:
        """Every table and view that a statement may read: its columns with their types."""
        listed = self._request("GET", "/api/v1/tables", None)["tables"]
        return {
            table["name"]: {column["name"]: column["type"] for column in table["columns"]}
            for table in listed
        }

    def _request(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        import requests

        try:
            response = requests.request(
                method,
                self._url + path,
                json=body,
                headers=self._headers,
                verify=self._verify,
                timeout=_SECONDS,
                # A redirect would carry the key elsewhere.
                allow_redirects=False,
            )
        except requests.RequestException as error:
            raise Retryable(f"the API at {self._url} does not answer ({error})") from None
        if response.ok and not response.is_redirect:
            answer: dict[str, Any] = response.json()
            return answer
        raise _refusal(self._url, response)


def _refusal(url: str, response: Any) -> Usage | Retryable | Fatal:
    try:
        sentence = str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        sentence = f"{url} answered {response.status_code}, as no API of Headgate does"
    if response.status_code in (429, 503):
        return Retryable(f"{sentence}; again in {response.headers.get('Retry-After', '5')} s")
    return Usage(sentence) if 400 <= response.status_code < 500 else Fatal(sentence)


def frame_of(columns: list[dict[str, str]], rows: list[list[Any]]) -> pd.DataFrame:
    """Rows with instants as UTC and numbers that may lack, rather than texts and floats."""
    import pandas as pd

    # By place, as two columns may have one name.
    series = []
    for place, column in enumerate(columns):
        values = pd.Series([row[place] for row in rows], dtype="object", name=column["name"])
        if column["type"] == "timestamp":
            values = pd.to_datetime(values, utc=True, format="ISO8601")
        elif column["type"] in _NUMBERS:
            values = _finite(values).astype(pd.api.types.pandas_dtype(_NUMBERS[column["type"]]))
        series.append(values)
    return pd.concat(series, axis=1) if series else pd.DataFrame()


def _finite(values: pd.Series) -> pd.Series:
    """What JSON has no numbers for comes as text: NaN, Infinity."""
    numbers: pd.Series = values.map(lambda value: float(value) if isinstance(value, str) else value)
    return numbers
