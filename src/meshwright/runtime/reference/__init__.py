"""A decoder in the plainest PyTorch: the reference for the runtime's results."""
