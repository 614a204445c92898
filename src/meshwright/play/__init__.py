"""Play lists of actions: their order, the clocks of ranks and streams, and what ranks hold along a list."""
