"""Rules as Spark SQL or as a function of DataFrames: in notebooks, over history, and live.

Imports rulepack and matching.
"""
