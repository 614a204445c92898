"""Layers of a plan: their rules, their stages, uneven partitions, recomputation by layer."""
