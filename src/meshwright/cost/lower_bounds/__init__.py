"""Lower bounds and dominance rules that spare a search evaluations."""
