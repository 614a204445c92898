"""Mixture-of-experts kernels: routing, dispatch and combine, expert products."""
