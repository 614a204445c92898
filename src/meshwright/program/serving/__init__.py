"""Memory of a serving replica: weights and cache of keys and values on each rank."""
