"""Serving plans: pools of replicas that fill caches and write tokens."""
