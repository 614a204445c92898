"""Faults of a run: their kinds, injected ones for trials, and their detection on ranks."""
