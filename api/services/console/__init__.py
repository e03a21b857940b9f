"""What the console's pages are made of: bounded questions whose answers fit a page."""
