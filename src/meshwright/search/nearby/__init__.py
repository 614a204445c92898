"""Plans near a given plan: one-choice changes, neighbours, the smallest fix, a diverse subset."""
