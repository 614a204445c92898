"""Attention with context parallelism: each cp rank holds a part of every sequence."""
