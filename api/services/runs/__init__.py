"""What the API makes for a caller beside its requests: commands that it runs, and evidence."""
