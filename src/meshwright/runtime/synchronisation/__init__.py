"""Exchanges of the plan key ``synchronise`` on PyTorch: codecs, encoded sums over a group, and outer optimizers."""
