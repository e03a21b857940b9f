"""Audit logs of cloud services: AWS, Azure, Google Cloud, GitHub, Kubernetes, Okta."""
