"""Measures a machine with torch: kernels, collectives, odd devices and links."""
