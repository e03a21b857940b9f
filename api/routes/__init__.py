"""The endpoints, one module a subject; each checks its input and calls a service."""
