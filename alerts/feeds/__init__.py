"""Feeds of threat intelligence: fetched on schedule, kept, and made into indicator lists."""
