"""The newest revision of each alert as flat rows in memory: what lists and filters ask.

A list over gold.alert itself would read the body of every revision there is with each question.
The rows are made once, and of each later commit only the files that it added are read. Whatever
else happened to the table (an erasure, a table made anew) makes all of them anew. `incident_id`
is also that of an incident which an alert led to; what the table has is `raised_in`. An alert whose
body cannot be read is there with what its columns say.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote

import duckdb

from alerts.domain.alert_body import in_body
from alerts.lifecycle.risk_score import ENTITY_KEY, INCIDENT, LED_TO
from alerts.tables import ALERT
from infra.delta.log_archive import LOG, from_on, single, singles
from infra.storage.checksums import json_lines
from infra.storage.paths import Location, texts

INDEX = "desk.alert"
"""What a question names in `needs` that asks these rows."""
KINDS = "desk.alert_kind"
"""Beside them: what the facets of a list count, by `kind`; some that no alert has any more."""

_MOST = 500
"""Commits; after more it is quicker to make all rows anew."""
_BODY = json.dumps(
    {
        "state": "VARCHAR", "lifecycle": "VARCHAR", "assignee": "VARCHAR", "verdict": "VARCHAR",
        "summary": "VARCHAR", "comment": "VARCHAR", "fields": "JSON", "group_key": "VARCHAR",
        "attribution": {"hostname": "VARCHAR", "certainty": "VARCHAR"},
        "rule": {"tags": ["VARCHAR"]},
        "entities": [{"type": "VARCHAR", "value": "VARCHAR"}],
    }
)  # fmt: skip


_FLAT = f"""
WITH bounds AS (
  SELECT alert_id, max(revision) AS revision, min_by(event_time, revision) AS first_event_time,
         max(epoch(TRY_CAST({in_body("detected_at")} AS TIMESTAMPTZ)) - epoch(received_at))
           FILTER (revision = 1 AND {in_body("mode")} = 'live') AS delay
  FROM {{source}} GROUP BY alert_id
),
newest AS (
  SELECT s.*, first_event_time, delay,
         CASE WHEN json_valid(s.body) THEN json_transform(s.body, '{_BODY}') END AS b
  FROM {{source}} s JOIN bounds USING (alert_id, revision)
)
SELECT alert_id, revision, activity, reason, mode, rule_id, rule_name, level, severity_id,
       risk_score, entity_type, entity_value, previous_entity, src_ip, event_time,
       first_event_time, delay, window_start, window_end, status, count, title, suppressed_by,
       tenant_uid, incident_id, incident_id AS raised_in,
       hash({ENTITY_KEY.format(group_key="b.group_key")}) AS entity_key,
       coalesce(b.state, 'open') AS state,
       coalesce(b.lifecycle, b.state, 'new') AS lifecycle, b.assignee AS assignee,
       b.verdict AS verdict, b.attribution.hostname AS hostname,
       coalesce(b.attribution.certainty, '') AS certainty,
       hash(level, lifecycle, status, verdict, assignee, rule_id, tenant_uid) AS kind,
       lower(concat_ws(chr(31), title, CASE WHEN NOT contains(title, rule_name) THEN rule_name END,
         entity_value, CASE WHEN NOT contains(title, hostname) THEN hostname END)) AS sought,
       list_transform(b.rule.tags, t -> lower(t)) AS tags,
       list_transform(b.entities, e -> lower(e.type || '|' || e.value)) AS names,
       lower(concat_ws(chr(10), title, entity_value, coalesce(src_ip, ''), rule_name,
         coalesce(b.summary, ''), coalesce(b.comment, ''), coalesce(CAST(b.fields AS VARCHAR), '')
       )) AS words
FROM newest QUALIFY row_number() OVER (PARTITION BY alert_id) = 1
"""
_LED = f"""
CREATE OR REPLACE TEMP TABLE led AS
SELECT shown.alert_id, min_by(made.alert_id, (made.window_end, made.alert_id)) AS led_to
FROM {INDEX} shown JOIN (SELECT * FROM {INDEX} WHERE rule_id = '{INCIDENT}') made ON {LED_TO}
WHERE shown.raised_in IS NULL AND {{changed}} GROUP BY shown.alert_id
"""
_NAME_THEM = f"""
UPDATE {INDEX} SET incident_id = led_to FROM led
WHERE {INDEX}.alert_id = led.alert_id AND incident_id IS DISTINCT FROM led_to
"""
# An incident's alerts change with it: a correction may give it to another device.
_FREE_OTHERS = f"""
UPDATE {INDEX} SET incident_id = NULL WHERE raised_in IS NULL AND incident_id IS NOT NULL
AND alert_id NOT IN (SELECT alert_id FROM led)
"""
_EMPTY_KINDS = f"""
CREATE OR REPLACE TABLE {KINDS} (kind UBIGINT, level VARCHAR, lifecycle VARCHAR, status VARCHAR,
  verdict VARCHAR, assignee VARCHAR, tenant_uid VARCHAR, rule_id VARCHAR, rule_name VARCHAR)
"""
_NEW_KINDS = f"""
INSERT INTO {KINDS} BY NAME
SELECT kind, any_value(level) AS level, any_value(lifecycle) AS lifecycle,
       any_value(status) AS status, coalesce(any_value(verdict), '') AS verdict,
       coalesce(any_value(assignee), '') AS assignee,
       coalesce(any_value(tenant_uid), '') AS tenant_uid, any_value(rule_id) AS rule_id,
       any_value(rule_name) AS rule_name
FROM {{source}} ANTI JOIN {KINDS} USING (kind) GROUP BY kind
"""


class AlertIndex:
    """Keeps the rows of one engine up to date. Not safe to share between threads."""

    def __init__(self, lake_root: Location, rows: str = "TRUE") -> None:
        """`rows`: which rows of gold.alert the engine's view of it has."""
        self._rows = rows
        self._folder = lake_root / ALERT.path
        self._mark: tuple[int, float] | None = None

    def renew(self, engine: duckdb.DuckDBPyConnection) -> None:
        """Make the rows those of the table's newest version; gold.alert is there in the engine."""
        later = self._later()
        if later is not None and len(later) == 1:
            return
        files = None if later is None else self._added([version for version, _ in later[1:]])
        cursor = engine.cursor()
        try:
            if files is not None and later is not None:
                # A file may be gone by now, or be written in another way than this reads.
                with suppress(duckdb.Error):
                    if files:
                        _merge(cursor, files, self._rows)
                    self._mark = later[-1]
                    return
            # Before it is read: what is committed meanwhile is looked at once more.
            log = self._folder / LOG
            newest = max(singles(log), default=None)
            commits = [] if newest is None else from_on(log, newest)
            self._mark = None
            _make(cursor)
            self._mark = commits[-1] if commits else None
        finally:
            cursor.close()

    def _later(self) -> list[tuple[int, float]] | None:
        """The commit that the rows are of, and those after it; None: all has to be made anew."""
        if self._mark is None:
            return None
        later = from_on(self._folder / LOG, self._mark[0])
        # With its time: a table made anew has the same versions, written later.
        return later if later[:1] == [self._mark] and len(later) <= _MOST else None

    def _added(self, versions: Sequence[int]) -> list[str] | None:
        """Files that these commits added; None where they did anything else to the rows."""
        # What lies in a bucket is read by the Delta extension alone.
        if not isinstance(self._folder, Path):
            return None
        files = []
        try:
            commits = texts([single(self._folder / LOG, version) for version in versions])
        except FileNotFoundError:
            return None
        for line in (line for text in commits for line in json_lines(text)):
            action = json.loads(line)
            if "metaData" in action or action.get("remove", {}).get("dataChange"):
                return None
            if added := action.get("add"):
                if added.get("deletionVector"):
                    return None
                # A compaction writes the same rows again.
                if added.get("dataChange"):
                    files.append(str(self._folder / unquote(added["path"])))
        return files


def _flat(source: str) -> str:
    # Not `format`: the shape of the body has braces of its own.
    return _FLAT.replace("{source}", source)


def _make(cursor: duckdb.DuckDBPyConnection) -> None:
    cursor.execute("CREATE SCHEMA IF NOT EXISTS desk")
    with _together(cursor):
        # A page's rows then lie side by side, and the newest are met first.
        cursor.execute(
            f"CREATE OR REPLACE TABLE {INDEX} AS {_flat(ALERT.name)} ORDER BY first_event_time DESC"
        )
        _name_incidents(cursor)
        cursor.execute(_EMPTY_KINDS)
        cursor.execute(_NEW_KINDS.format(source=INDEX))


def _name_incidents(cursor: duckdb.DuckDBPyConnection, fresh: str | None = None) -> None:
    """Let alerts that led to an incident name it, as those raised in it do.

    `fresh`: the rows that changed; None: all.
    """
    incidents = f"SELECT count(*) FROM {fresh or INDEX} WHERE rule_id = '{INCIDENT}'"
    whole = bool(cursor.execute(incidents).fetchall()[0][0])
    if fresh is None and not whole:
        return
    changed = "TRUE" if whole else f"shown.alert_id IN (SELECT alert_id FROM {fresh})"
    cursor.execute(_LED.replace("{changed}", changed))
    cursor.execute(_NAME_THEM)
    if whole:
        cursor.execute(_FREE_OTHERS)


@contextmanager
def _together(cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """What is done within is seen as a whole, or not at all."""
    cursor.execute("BEGIN")
    try:
        yield
        cursor.execute("COMMIT")
    except duckdb.Error:
        cursor.execute("ROLLBACK")
        raise


def _merge(cursor: duckdb.DuckDBPyConnection, files: Sequence[str], rows: str) -> None:
    named = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
    # Past the view of gold.alert, which would have left out what is not to be seen.
    source = f"(SELECT * FROM read_parquet([{named}], union_by_name = true) WHERE {rows})"
    cursor.execute(f"CREATE OR REPLACE TEMP TABLE fresh AS {_flat(source)}")
    with _together(cursor):
        # A list is ordered by the first revision, which is mostly in another file.
        cursor.execute(
            "UPDATE fresh SET first_event_time = d.first_event_time, delay = d.delay"
            f" FROM {INDEX} d WHERE d.alert_id = fresh.alert_id AND d.revision < fresh.revision"
        )
        cursor.execute(
            f"DELETE FROM fresh WHERE alert_id IN (SELECT d.alert_id FROM {INDEX} d"
            " JOIN fresh f ON d.alert_id = f.alert_id AND d.revision >= f.revision)"
        )
        cursor.execute(f"DELETE FROM {INDEX} WHERE alert_id IN (SELECT alert_id FROM fresh)")
        cursor.execute(f"INSERT INTO {INDEX} BY NAME SELECT * FROM fresh")
        _name_incidents(cursor, "fresh")
        cursor.execute(_NEW_KINDS.format(source="fresh"))
