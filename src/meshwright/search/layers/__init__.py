"""Search a strategy for every layer and the cut into stages together."""
