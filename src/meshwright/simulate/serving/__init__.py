"""Iterations of serving replicas, played action by action."""
