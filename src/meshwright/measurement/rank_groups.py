"""Choose the ranks that are measured together: rounds of disjoint groups, the same on every rank.

For collectives: neighbours on a node in groups of 2, 4, 8, … as tensor parallelism has them, all such groups at once;
every node by itself (all nodes at once); then 2, 4, 8, … and all nodes, once with all their ranks in
one group and once as rails, the ranks of equal local number, all rails at once as data parallelism uses them.

For pairs: a round-robin tournament by the circle method, in which every pair meets exactly once and the pairs of a
round are disjoint. If that takes more rounds than wanted, rounds spread evenly over the tournament are used: each
covers every player, except one if their number is odd, so two rounds cover all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshwright.measurement.results import Group, Scope

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class GroupRound:
    """Disjoint groups that work at once; ``name`` is for people."""

    name: str
    scope: Scope
    groups: tuple[Group, ...]

    def group_of(self, rank: int) -> Group | None:
        """Return the group of a rank; None while it waits."""
        return next((group for group in self.groups if rank in group.ranks), None)


def collective_rounds(hosts: Sequence[str]) -> tuple[GroupRound, ...]:
    """Return the rounds for collectives, from the host of every rank: inside nodes, then over more and more nodes."""
    nodes = ranks_by_host(hosts)
    *parts, whole = _counts(max(map(len, nodes.values()))) or [1]
    rounds = [_parts_of_nodes(nodes, size) for size in parts]
    if whole > 1:
        rounds.append(_in_nodes(nodes))
    for count in _counts(len(nodes)):
        chosen = list(nodes.values())[:count]
        together = Group(
            name=f"{count} nodes",
            scope="nodes",
            ranks=tuple(rank for ranks in chosen for rank in ranks),
            nodes=count,
            local=_common_length(chosen),
        )
        rounds.append(GroupRound(together.name, "nodes", (together,)))
        if max(map(len, chosen)) > 1:
            rounds.append(_rails(chosen, count))
    return tuple(rounds)


def pair_rounds(hosts: Sequence[str], most: int) -> tuple[GroupRound, ...]:
    """Return rounds of pairs: devices of one host, then hosts (rank i of one with rank i of the other), ``most`` each.

    A group's first half of ranks are one side, its second half the other: see ``partner``.
    """
    nodes = ranks_by_host(hosts)
    names = list(nodes)
    widest = max(map(len, nodes.values()))
    rounds = [_device_pairs(nodes, pairs) for pairs in chosen_rounds(widest, most)]
    rounds += [
        GroupRound(
            "pairs of hosts", "host pair", tuple(_host_pair(nodes, names[a], names[b]) for a, b in pairs)
        )
        for pairs in chosen_rounds(len(names), most)
    ]
    return tuple(played for played in rounds if played.groups)


def partner(group: Group, rank: int) -> int | None:
    """Return a rank's partner in the other half of its group; None if the rank is left over."""
    half, place = len(group.ranks) // 2, group.ranks.index(rank)
    if place >= 2 * half:
        return None
    return group.ranks[(place + half) % (2 * half)]


def tournament(players: int) -> list[list[Pair]]:
    """Return rounds in which every two players meet once; an odd number adds a player whom nobody meets."""
    circle = list(range(players + players % 2))
    rounds = []
    for _ in range(len(circle) - 1):
        half = len(circle) // 2
        meetings = zip(circle[:half], reversed(circle[half:]), strict=True)
        rounds.append([(min(pair), max(pair)) for pair in meetings if max(pair) < players])
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return rounds


def chosen_rounds(players: int, most: int) -> list[list[Pair]]:
    """Return the tournament, or ``most`` of its rounds (at least two if their number is odd), evenly spaced."""
    if players < 2:
        return []
    rounds = tournament(players)
    count = min(len(rounds), max(most, 1 + players % 2))
    return [rounds[index * len(rounds) // count] for index in range(count)]


def ranks_by_host(hosts: Sequence[str]) -> dict[str, list[int]]:
    """Return the ranks of every host; hosts in the order of their first rank."""
    found: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        found.setdefault(host, []).append(rank)
    return found


def _parts_of_nodes(nodes: Mapping[str, Sequence[int]], size: int) -> GroupRound:
    """Return groups of ``size`` neighbours on all nodes; ranks that are left over wait."""
    groups = [
        Group(
            name=f"{size} inside {host} from {first}",
            scope="part of node",
            ranks=tuple(ranks[first : first + size]),
            nodes=1,
            local=size,
        )
        for host, ranks in nodes.items()
        for first in range(0, len(ranks) - size + 1, size)
    ]
    return GroupRound(f"groups of {size} inside hosts", "part of node", tuple(groups))


def _in_nodes(nodes: Mapping[str, Sequence[int]]) -> GroupRound:
    groups = [
        Group(name=f"inside {host}", scope="node", ranks=tuple(ranks), nodes=1, local=len(ranks))
        for host, ranks in nodes.items()
        if len(ranks) > 1
    ]
    return GroupRound("inside hosts", "node", tuple(groups))


def _rails(chosen: Sequence[Sequence[int]], count: int) -> GroupRound:
    """Return one group per local number that all chosen nodes have."""
    rails = zip(*chosen, strict=False)
    groups = [
        Group(name=f"rail {index} of {count} nodes", scope="rail", ranks=ranks, nodes=count, local=1)
        for index, ranks in enumerate(rails)
    ]
    return GroupRound(f"rails of {count} nodes", "rail", tuple(groups))


def _device_pairs(nodes: Mapping[str, Sequence[int]], pairs: Sequence[Pair]) -> GroupRound:
    """Return the same pairs of local numbers on every host that has both."""
    groups = [
        Group(
            name=f"devices {a} and {b} of {host}",
            scope="device pair",
            ranks=(ranks[a], ranks[b]),
            nodes=1,
            local=2,
        )
        for host, ranks in nodes.items()
        for a, b in pairs
        if b < len(ranks)
    ]
    return GroupRound("pairs of devices", "device pair", tuple(groups))


def _host_pair(nodes: Mapping[str, Sequence[int]], a: str, b: str) -> Group:
    local = min(len(nodes[a]), len(nodes[b]))
    ranks = (*nodes[a][:local], *nodes[b][:local])
    return Group(name=f"{a} and {b}", scope="host pair", ranks=ranks, nodes=2, local=local)


def _counts(members: int) -> list[int]:
    """Return 2, 4, 8, … below the number of members, and that number; nothing for one member."""
    powers = [2**power for power in range(1, members.bit_length()) if 2**power < members]
    return [*powers, members] if members > 1 else []


def _common_length(lists: Sequence[Sequence[int]]) -> int:
    lengths = set(map(len, lists))
    return lengths.pop() if len(lengths) == 1 else 0
