"""Read links between nodes from a cluster file: groups of equal cards, a matrix, single pairs.

Rates have one of three units: ``relative`` to the node's cards, ``nic_gbit_per_s_per_node`` of the cards that
two nodes use between them, or ``sendrecv_gbyte_per_s_per_device`` as a sweep over all pairs measured it, with all
devices of both nodes active. The result is in shares of the cards' rate. Measured rates are relative to the fastest
pair's, which is assumed to reach the cost model's rate of the cards; so they must cover all pairs. The slower
direction counts. All problems are collected: a matrix of another size than the cluster, nodes that no group or two
groups have, rates above the cards', missing pairs.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from meshwright.cluster.cluster import Links, Pool
from meshwright.cluster.fast_domains import node_count, node_devices
from meshwright.cluster.file_schema import LinksFile, PairFile
from meshwright.cluster.file_units import GBIT
from meshwright.errors import Problem

MEASURED = "sendrecv_gbyte_per_s_per_device"
UNITS = ("relative", "nic_gbit_per_s_per_node", MEASURED)
ROUNDING = 1 + 1e-9
"""Tolerance for a rate above the cards' that only another unit's rounding explains."""
Rates = list[list[float | None]]


def unfold_links(spec: LinksFile, pools: Sequence[Pool | None], problems: list[Problem]) -> Links | None:
    """Return the links of a cluster with one pool; None, with ``problems`` added, if something is wrong."""
    if len(pools) != 1 or pools[0] is None:
        rule = "links between nodes are told of a cluster with one pool"
        problems += [Problem("links", len(pools), rule, "one pool, with links.groups")] * (len(pools) > 1)
        return None
    pool = pools[0]
    nodes = node_count(pool)
    if nodes is None or nodes < 2:
        rule = f"{pool.count} devices are not two or more full nodes of {node_devices(pool)}"
        problems.append(
            Problem("links", pool.count, rule, f"count: {max(2, nodes or 2) * node_devices(pool)}")
        )
        return None
    found = list(_wrong(spec, pool, nodes))
    problems += found
    if found:
        return None
    rates = _rates(spec, pool, nodes)
    measured = _unit(spec) == MEASURED
    top = max(rate or 0.0 for row in rates for rate in row) if measured else 1.0
    shares = tuple(
        tuple(1.0 if i == j else _slower(rates, i, j, top) for j in range(nodes)) for i in range(nodes)
    )
    return Links(shares=shares, kinds=_kinds(spec, nodes), source=spec.source)


def _slower(rates: Rates, one: int, other: int, top: float) -> float:
    """Return the share of the slower direction; a pair measured in one direction counts for both."""
    known = [rate for rate in (rates[one][other], rates[other][one]) if rate is not None]
    return min(1.0, min(known) / top)


def _card(pool: Pool) -> float:
    """Return the Gbit/s of one node, one direction."""
    return pool.node.nic_bytes_per_s * node_devices(pool) / pool.node.devices / GBIT


def _unit(spec: LinksFile) -> str:
    """Return the unit of the matrix, or of the first pair if there is none."""
    of_pairs = (unit for pair in spec.pairs for unit in UNITS if getattr(pair, unit) is not None)
    of_file = (unit for unit in UNITS if getattr(spec, unit) is not None)
    return next(of_file, "relative" if spec.groups else next(of_pairs, "relative"))


def _rates(spec: LinksFile, pool: Pool, nodes: int) -> Rates:
    """Return every pair's rate: shares of the cards', or as measured; None for a direction that was not measured."""
    unit = _unit(spec)
    matrix = getattr(spec, unit)
    scale = _card(pool) if unit == "nic_gbit_per_s_per_node" else 1.0
    usual = None if unit == MEASURED else 1.0
    rates: Rates = [[usual] * nodes for _ in range(nodes)]
    if matrix is not None:
        rates = [[value / scale for value in row] for row in matrix]
    if spec.groups:
        rates = _of_groups(spec, pool, nodes)
    for pair in spec.pairs:
        first, second = pair.nodes
        rate = _share(pair, pool)
        rates[first][second] = rate
        if (second, first) not in {other.nodes for other in spec.pairs}:
            rates[second][first] = rate
    return rates


def _share(pair: PairFile, pool: Pool) -> float:
    if pair.nic_gbit_per_s_per_node is not None:
        return pair.nic_gbit_per_s_per_node / _card(pool)
    rate = pair.relative if pair.relative is not None else pair.sendrecv_gbyte_per_s_per_device
    assert rate is not None
    return rate


def _of_groups(spec: LinksFile, pool: Pool, nodes: int) -> Rates:
    group = {node: index for index, group in enumerate(spec.groups) for node in group.nodes}
    own = [one.nic_gbit_per_s_per_node / _card(pool) for one in spec.groups]
    between = (spec.between_groups_gbit_per_s_per_node or _card(pool)) / _card(pool)
    return [
        [
            own[group[i]] if group[i] == group[j] else min(between, own[group[i]], own[group[j]])
            for j in range(nodes)
        ]
        for i in range(nodes)
    ]


def _kinds(spec: LinksFile, nodes: int) -> tuple[str, ...]:
    named = {node: group.name for group in spec.groups for node in group.nodes}
    return tuple(named[node] for node in range(nodes)) if named else spec.kinds


def _wrong(spec: LinksFile, pool: Pool, nodes: int) -> Iterator[Problem]:
    given = [unit for unit in UNITS if getattr(spec, unit) is not None]
    if len(given) + bool(spec.groups) > 1:
        rule = "is one of several answers to the same question"
        yield Problem("links", [*given, *(["groups"] if spec.groups else [])], rule, "one matrix, or groups")
    if not given and not spec.groups and not spec.pairs:
        yield Problem("links", None, "says nothing", "groups, pairs, or one of " + ", ".join(UNITS))
    if spec.kinds and (spec.groups or len(spec.kinds) != nodes):
        yield Problem("links.kinds", list(spec.kinds), f"needs one name for each of {nodes} nodes", "groups")
    for unit in given:
        yield from _wrong_matrix(unit, getattr(spec, unit), pool, nodes)
    yield from _wrong_groups(spec, pool, nodes)
    yield from _wrong_pairs(spec, pool, nodes)


def _wrong_matrix(
    unit: str, matrix: tuple[tuple[float, ...], ...], pool: Pool, nodes: int
) -> Iterator[Problem]:
    sizes = (len(matrix), *(len(row) for row in matrix))
    if set(sizes) != {nodes}:
        rule = f"must have {nodes} rows of {nodes} rates: {pool.count} devices are so many nodes"
        yield Problem(f"links.{unit}", f"{sizes[0]} rows of {min(sizes[1:])}", rule, "0 for a node itself")
        return
    for i, row in enumerate(matrix):
        for j, rate in enumerate(row):
            if i != j:
                yield from _wrong_rate(f"links.{unit}.{i}.{j}", unit, rate, pool)


def _wrong_rate(field: str, unit: str, rate: float, pool: Pool) -> Iterator[Problem]:
    most = {"relative": 1.0, "nic_gbit_per_s_per_node": _card(pool)}.get(unit)
    if rate <= 0:
        yield Problem(
            field, rate, "must be more than 0: all nodes reach each other", "the slowest way's rate"
        )
    elif most is not None and rate > most * ROUNDING:
        rule = f"is above what the cards of a node do, {most:g}"
        yield Problem(field, rate, rule, "raise the node's nic_gbit_per_s_per_node, or write a lower rate")


def _wrong_groups(spec: LinksFile, pool: Pool, nodes: int) -> Iterator[Problem]:
    unit = "nic_gbit_per_s_per_node"
    for index, group in enumerate(spec.groups):
        yield from _wrong_rate(f"links.groups.{index}.{unit}", unit, group.nic_gbit_per_s_per_node, pool)
        yield from _outside(f"links.groups.{index}.nodes", group.nodes, nodes)
    between, field = spec.between_groups_gbit_per_s_per_node, "links.between_groups_gbit_per_s_per_node"
    if between is not None and not spec.groups:
        yield Problem(field, between, "is between groups, and there are none", "add groups")
    elif between is not None:
        yield from _wrong_rate(field, unit, between, pool)
    elif len(spec.groups) > 1:
        yield Problem(field, None, "needed where there are several groups", f"{field[6:]}: 100")
    count = Counter(node for group in spec.groups for node in group.nodes)
    for node in range(nodes if spec.groups else 0):
        if count[node] != 1:
            rule = f"node {node} is in {count[node]} groups, and has cards of one kind"
            yield Problem("links.groups", node, rule, "name each node in one group")


def _wrong_pairs(spec: LinksFile, pool: Pool, nodes: int) -> Iterator[Problem]:
    seen = Counter(pair.nodes for pair in spec.pairs)
    measured = _unit(spec) == MEASURED
    for index, pair in enumerate(spec.pairs):
        field = f"links.pairs.{index}"
        given = [unit for unit in UNITS if getattr(pair, unit) is not None]
        yield from _outside(f"{field}.nodes", pair.nodes, nodes)
        if pair.nodes[0] == pair.nodes[1] or seen[pair.nodes] > 1:
            yield Problem(f"{field}.nodes", list(pair.nodes), "must be two nodes, and said once", "[0, 1]")
        if len(given) != 1:
            yield Problem(field, given or None, "needs one rate", "one of " + ", ".join(UNITS))
        elif (given == [MEASURED]) != measured:
            rule = "measured and declared rates are not held against each other"
            yield Problem(f"{field}.{given[0]}", getattr(pair, given[0]), rule, "all pairs in one of the two")
        else:
            yield from _wrong_rate(f"{field}.{given[0]}", given[0], getattr(pair, given[0]), pool)
    if measured and spec.sendrecv_gbyte_per_s_per_device is None:
        known = {frozenset(pair) for pair in seen}
        lacking = [[i, j] for i in range(nodes) for j in range(i) if frozenset((i, j)) not in known]
        if lacking:
            rule = f"{len(lacking)} pairs of nodes were not measured, such as {lacking[0]}"
            yield Problem("links.pairs", len(spec.pairs), rule, "measure all pairs, or declare rates")


def _outside(field: str, indices: Sequence[int], nodes: int) -> Iterator[Problem]:
    beyond = [index for index in indices if index >= nodes]
    if beyond:
        yield Problem(field, beyond, f"must be nodes from 0 to {nodes - 1}", "count nodes from 0")
