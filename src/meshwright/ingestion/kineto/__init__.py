"""Read PyTorch Kineto traces: seconds per step by category, and their comparison with a prediction."""
