"""Headgate as one thing: the command line, the demo, and what notebooks and scripts import.

The top of the house: it may import every package, and none imports it.
"""
