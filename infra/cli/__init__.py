"""The operator's commands: doctor, up, run, status, backup, capacity, compact, kafka, settings,
tables.

The top of `infra`: nothing in it is imported by another package.
"""
