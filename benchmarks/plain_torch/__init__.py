"""Hand-written PyTorch that trains the same decoder in the same layouts: what our executor is held against."""
