"""The plan key ``synchronise``: what replicas exchange, how often, in which encoding, and how results are applied."""
