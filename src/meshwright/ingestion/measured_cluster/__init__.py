"""Create a cluster file from a measured machine: its hardware and the fitted constants of the cost model."""
