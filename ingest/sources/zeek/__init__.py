"""How Zeek's logs are read: their packings, what they have in common, and each log by itself."""
