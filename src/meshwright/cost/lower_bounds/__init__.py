"""Lower bounds and dominance rules by which a search skips evaluations."""
