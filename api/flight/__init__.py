"""Arrow Flight SQL: the door of ADBC, JDBC and SQLAlchemy to the statements of `api.sql`, with the
keys, limits and audit of `POST /api/v1/statements`."""
