"""Benchmarks: each compares side by side in one run, checks equal outputs first, keeps losses."""
