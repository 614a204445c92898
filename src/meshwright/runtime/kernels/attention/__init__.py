"""Softmax attention kernels of the heads of one rank."""
