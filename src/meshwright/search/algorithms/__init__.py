"""Search algorithms over a space of plans: exhaustive, pruned by lower bounds, best-first, single best."""
