"""Which node takes which place among a plan's ranks, where links between nodes are not alike."""
