"""A data driver for msticpy's `QueryProvider`, over the REST API of a lake elsewhere."""
