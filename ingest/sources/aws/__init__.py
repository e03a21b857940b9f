"""Logs of AWS beside its audit: DNS, web requests, storage."""
