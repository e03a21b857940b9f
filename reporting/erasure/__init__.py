"""A person or a device taken out of all tables and topics, with a certificate."""
