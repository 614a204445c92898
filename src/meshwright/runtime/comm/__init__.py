"""Communication of a rank: collectives, pipeline messages, ring exchanges."""
