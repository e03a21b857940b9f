"""The web console: pages that a server writes, over the services that answer the API."""
