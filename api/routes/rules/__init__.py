"""Rules: read, tested, switched; a team's own written; tried on history as jobs."""
