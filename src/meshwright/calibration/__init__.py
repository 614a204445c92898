"""Fit constants of the cost model to measured runs, and estimate the error on other runs."""
