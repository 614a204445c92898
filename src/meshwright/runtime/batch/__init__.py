"""The rank's share of a step's batch: its micro-batches, sequences and positions."""
