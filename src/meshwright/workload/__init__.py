"""The workload noun: what one step must process."""
