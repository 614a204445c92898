"""Flat buffers of a rank: units of tensors, their places, and the shard of each rank."""
