"""Benchmarks: each compares side by side in one run, checks equal outputs first, keeps losses."""

import headgate.packages  # noqa: F401  makes tables, jobs and commands known
