"""What reading a record is made of: sources, decoding, times, syslog, JSON, OCSF, and rows of
Arrow.

Plain Python and Arrow, no Spark. `ingest.sources` builds on it.
"""
