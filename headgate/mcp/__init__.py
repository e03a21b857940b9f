"""Assistants ask through the REST API by the Model Context Protocol; they read and propose.

Protocol: https://modelcontextprotocol.io/specification/2025-06-18 (JSON-RPC 2.0).
"""
