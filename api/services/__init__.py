"""What endpoints answer from: bounded queries over DuckDB, no HTTP."""
