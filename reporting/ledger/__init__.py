"""Completeness: received, parsed, dead, matched, unaccounted; and the check against broker and
tables."""
