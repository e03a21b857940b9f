"""Logs of AWS: audit, DNS, web requests, storage."""
