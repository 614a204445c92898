"""Shrink a running job to the replicas that are left, and let further processes join it, in the same processes."""
