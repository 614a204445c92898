"""Peak memory of a rank: states, ZeRO buffers, activations in flight."""
