"""What is told of a training run while it goes on: a file of metrics for programs, a bar or lines for people."""
