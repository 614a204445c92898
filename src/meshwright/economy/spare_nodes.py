"""The fraction of time that a job waits for a repaired node, given its number of spare nodes.

N nodes work and S more wait for the first of them to fail. Nodes fail as a Poisson process, one every M seconds, while
all N work; each failed one is away for a repair of D seconds on average. The job stops while S + 1 nodes are away, and
nothing fails then. That is an Erlang loss system of S + 1 servers under a load of D/M: it stands still for the share

    B(S + 1, D/M) = (a^(S+1)/(S+1)!) / Σ_{k ≤ S+1} a^k/k!,  a = D/M

of the time, whatever the distribution of the repairs is (A. K. Erlang 1917; its insensitivity: B. A. Sevastyanov 1957).
With no spare node that is D/(M + D). A node that works again is a spare one again.
"""


def stopped_share(mtbf_s: float, repair_s: float, spare_nodes: int) -> float:
    """B(S + 1, D/M), by its recursion over servers. 0 where nothing fails (M infinite)."""
    load, blocked = repair_s / mtbf_s, 1.0
    for servers in range(1, spare_nodes + 2):
        blocked = load * blocked / (servers + load * blocked)
    return blocked
