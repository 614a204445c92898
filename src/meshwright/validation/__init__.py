"""Predict the measured runs of a table, and compute the errors."""
