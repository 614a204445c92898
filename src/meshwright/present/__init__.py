"""Rendering of results for people and machines."""
