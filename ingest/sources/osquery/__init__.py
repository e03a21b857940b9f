"""osquery's tables as events."""
