"""How much of the logical bytes of a collective one rank sends."""

WIRE_FACTOR: dict[str, float] = {
    "all-gather": 1.0,
    "reduce-scatter": 1.0,
    "all-reduce": 2.0,
    "all-to-all": 1.0,
    "ring": 1.0,
    "broadcast": 1.0,
    "reduce": 1.0,
}
"""One rank sends factor·(n−1)/n of the logical bytes (ring algorithms; Thakur et al. 2005, section 3); broadcast and
reduce go along a chain, in which all ranks but one send everything."""
