"""Prove that a small plan computes on local ranks what plain PyTorch computes in one process."""
