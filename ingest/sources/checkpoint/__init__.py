"""Check Point's firewalls."""
