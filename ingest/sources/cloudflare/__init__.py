"""Cloudflare's logs."""
