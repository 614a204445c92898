"""Context parallelism: positions of each rank, visible keys, collectives of attention."""
