"""Mamba-2 kernels of the heads of one rank."""
