"""Spark SQL from users: checked against an allow list, translated, run in a process that can be
killed."""
