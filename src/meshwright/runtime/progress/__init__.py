"""Report a training run while it goes on: a metrics file for programs, a bar or lines for people."""
