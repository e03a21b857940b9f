"""The live rules over history: did the stream tell the same, and if not, why.

Imports backtest.
"""
