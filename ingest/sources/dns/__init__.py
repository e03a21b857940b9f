"""Name servers: BIND and Unbound."""
