"""Meshwright plans, predicts and runs the way a large model is spread over many devices."""

__version__ = "0.1.0"
