"""Measure a machine with torch: kernels, collectives, slow devices and links."""
