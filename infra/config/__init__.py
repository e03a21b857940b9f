"""Settings and secrets: read once by the command, typed, frozen, passed down.

Imports storage and errors; everything above may import it.
"""
