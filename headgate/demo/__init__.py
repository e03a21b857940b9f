"""`headgate demo`: everything on one machine, with a story in the logs.

Only the command line imports it.
"""
