"""Automatic schedules with split backward passes: greedy orders of F and I, and W in the gaps."""
