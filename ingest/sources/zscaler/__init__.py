"""Sources of Zscaler."""
