"""What is in force as files of a git repository: export, plan, apply."""
