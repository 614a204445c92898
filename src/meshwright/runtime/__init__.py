"""Training and emulation of a plan on torch's process groups."""
