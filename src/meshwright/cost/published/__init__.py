"""Cost models of published papers, re-implemented from their formulas and held against their printed results."""
