"""Lowering: from a plan to its stages, pass bodies and action lists."""
