"""Rules for callers: listed, read, tested, changed, and tried on history."""
