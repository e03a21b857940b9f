"""Rules on their way into force: tried in shadow on live events, then promoted or dropped."""
