"""Processes and what they say: subprocesses, logs, the clock, Java and its archives, text output.

Imports config and what lies below it.
"""
