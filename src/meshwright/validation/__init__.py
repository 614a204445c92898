"""Validation: predict measured runs from a table of them, and say how far off the predictions are."""
