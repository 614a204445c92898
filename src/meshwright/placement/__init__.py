"""Placement: the node of each of a plan's ranks where links are uneven, and the rank of each expert."""
