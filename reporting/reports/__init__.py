"""Scheduled reports: a module here is a report, found by itself."""
