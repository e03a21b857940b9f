"""Formats rather than products: any JSON, any syslog, CEF and LEEF, OCSF, and Headgate's own
events."""
