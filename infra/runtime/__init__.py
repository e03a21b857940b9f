"""Running jobs: the driver, restarts, monitoring, lag, status, and the registries of jobs and
commands.

Imports `infra.streaming` and below; packages register their jobs and commands here.
"""
