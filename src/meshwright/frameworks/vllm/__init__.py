"""Serving plans as commands of vLLM."""
