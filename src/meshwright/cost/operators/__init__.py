"""Seconds of operators, kernels, collectives and whole passes on one rank."""
