"""Explanations of serving plans."""
