"""Calibration: fit constants of the cost model to measured runs, and say how well they would do on others."""
