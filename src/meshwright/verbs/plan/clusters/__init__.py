"""Plan on several clusters or for several models: bounds, rankings, limits and the choice."""
