"""DHCP sessions: lease rules in plain Python, the stateful tracker, its state and its rebuild.

Imports `infra`, `ingest.tables` and, for history, `enrich.attribution`'s tables.
"""
