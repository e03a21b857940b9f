"""The smallest body that the description of an operation takes."""

from __future__ import annotations

from typing import Any


def least(schema: dict[str, Any], spec: dict[str, Any]) -> Any:
    """The smallest value that a schema of the description takes."""
    if "$ref" in schema:
        schema = spec["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    if "anyOf" in schema:
        return least(schema["anyOf"][0], spec)
    match schema.get("type"):
        case "object":
            fields = schema.get("properties", {})
            return {name: least(fields[name], spec) for name in schema.get("required", [])}
        case "array":
            return [least(schema["items"], spec)] * max(1, schema.get("minItems", 0))
        case "integer" | "number":
            return max(1, schema.get("minimum", 0))
        case "string":
            times = {"date": "2099-01-01", "date-time": "2025-03-01T00:00:00Z"}
            return times.get(schema.get("format", ""), "x" * max(3, schema.get("minLength", 0)))
    return None
