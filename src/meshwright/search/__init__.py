"""Search: the space of legal plans and the ways through it."""
