"""Expectations about silver.event, and what of it does not meet them.

`found` asks DuckDB for what ingest wrote, `suites` say what is expected of it, `validate`
runs them with Great Expectations, `record` keeps the outcomes in ops.quality, and `report`
tells the platform itself what failed, so that an alert arises like any other.
"""
