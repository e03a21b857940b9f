"""Every product whose logs we read, one folder a family; a module with `SOURCES` is found by
itself.

Imports `ingest.parsing` alone. The pipeline looks sources up by name.
"""
