"""Commands that the API runs for a caller, and what they make."""
