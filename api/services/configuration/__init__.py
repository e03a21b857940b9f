"""What the platform is set up with over REST: indicator lists, inventories, webhooks."""
