"""Windows events many at once: the row reader itself, run on columns in place of values."""
