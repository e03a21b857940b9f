"""History read again with today's parsers, while the jobs run.

Imports pipeline and completeness.
"""
