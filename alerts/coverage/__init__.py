"""Rules that can see nothing now, and what rules cost.

Imports rulebook.
"""
