"""What verdicts teach about rules: how each does, and filters that would have kept noise away."""
