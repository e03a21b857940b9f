"""CrowdStrike Falcon."""
