"""Statements that group and count, answered from what was counted before: of each day of a table
partial aggregates are kept, so that one asked again reads the files that are new."""
