"""Kernels over a vocabulary cut over ranks: embedding, logits, cross-entropy."""
