"""Exchanges of the plan key ``synchronise``: stretches of tensors, their encoded bytes, and the collectives."""
