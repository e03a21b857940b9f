"""Jobs `ingest` and `files` and imports: a batch of records into bronze and silver, once.

Imports parsing, sources by name, completeness and `infra`.
"""
