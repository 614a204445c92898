"""Operators of a model, and the chains of operators that make its blocks."""
