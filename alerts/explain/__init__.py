"""Why an alert is there: rule, matched values, evidence.

Imports backtest and lifecycle.
"""
