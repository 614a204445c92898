"""Transforms of a model graph: adapters, recomputation, vocabulary parallelism, small copies."""
