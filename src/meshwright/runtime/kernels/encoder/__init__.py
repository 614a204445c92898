"""Kernels of the operators that only models with an encoder have."""
