"""Explanations of a plan: its time and memory by cause, its neighbours, and the changes that beat it."""
