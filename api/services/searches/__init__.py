"""Searches as jobs, their results, and queries that are kept."""
