"""Sharded parameters, gradients and optimizer state of a rank."""
