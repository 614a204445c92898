"""Search: the space of legal plans and the search algorithms."""
