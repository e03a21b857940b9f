"""Packed messages: Avro and Protobuf with their schemas, read into the JSON that sources read.

Imports `ingest.parsing`; the pipeline asks for a format by its name.
"""
