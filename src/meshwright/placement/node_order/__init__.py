"""Order of a cluster's nodes among a plan's ranks, where links between nodes differ."""
