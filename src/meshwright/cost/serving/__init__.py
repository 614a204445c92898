"""Closed-form time and memory of a serving replica."""
