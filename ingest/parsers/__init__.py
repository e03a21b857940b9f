"""One module a product; each lists its sources in `SOURCES`."""
