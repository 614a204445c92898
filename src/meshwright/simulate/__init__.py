"""Simulation of a Program, action by action."""
