"""A decoder as plainly as it can be written: what the runtime's results are compared with."""
