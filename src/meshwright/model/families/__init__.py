"""Model families: readers of ``config.json`` for shapes and for numerics, and their two tables."""
