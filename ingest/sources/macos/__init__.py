"""Sources of macOS."""
