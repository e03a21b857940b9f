"""What proves that nothing was lost: gaps, offset ranges, truncated logs, where counts are
complete.

Imports `infra`; pipeline, quality and reports read it.
"""
