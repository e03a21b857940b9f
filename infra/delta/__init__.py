"""Delta tables: what a table is, its log, transactions, retention, time travel, DuckDB views.

Imports `infra.spark` and what lies below; streams and batches come above it.
"""
