"""Model states in host memory: the split of a shard, and copies of gradients and parameters."""
