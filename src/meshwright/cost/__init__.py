"""Cost: how long operators and collectives take, what they hold, and closed forms over arrays of plans."""
