"""Counts by minute and hour, compared with the events they count; jobs `rollup` and `logins`.

Imports `ingest.completeness` and `infra`.
"""
