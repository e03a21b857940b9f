"""The matcher: a pack over batches of events, in Arrow, with a literal prefilter before it.

Imports `alerts.rulepack` alone, as it runs in Spark's workers; `detection` puts it into the jobs.
"""
