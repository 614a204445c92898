"""Read tables of measured serving runs, and compute the errors of their predictions."""
