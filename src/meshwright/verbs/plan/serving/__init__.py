"""Plans that serve: the question, the search on each cluster on offer, and the answer."""
