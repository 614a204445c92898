"""Which expert lies on which rank, by how often tokens choose each of them and each two together."""
