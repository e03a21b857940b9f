"""Rules over history: what they would have raised, as was known then, compared with what was.

Imports rulebook, lifecycle and spark_rules.
"""
