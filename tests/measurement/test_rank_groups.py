"""Who is measured together: disjoint, complete, and with nobody left out where pairs are only sampled."""

from collections import Counter
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.measurement.rank_groups import (
    chosen_rounds,
    collective_rounds,
    pair_rounds,
    partner,
    ranks_by_host,
    tournament,
)

players = st.integers(2, 40)
layouts = st.lists(st.integers(1, 5), min_size=1, max_size=9).map(
    lambda sizes: [f"h{node}" for node, size in enumerate(sizes) for _ in range(size)]
)
shuffled = layouts.flatmap(st.permutations)
laws = settings(deadline=None, max_examples=60)


@laws
@given(players)
def test_in_a_tournament_every_pair_meets_once_and_nobody_plays_twice_in_a_round(count):
    rounds = tournament(count)
    assert Counter(pair for played in rounds for pair in played) == Counter(combinations(range(count), 2))
    for played in rounds:
        members = [player for pair in played for player in pair]
        assert len(members) == len(set(members)) >= count - 1
    assert len(rounds) == count - 1 + count % 2


@laws
@given(players, st.integers(1, 12))
def test_a_sample_of_rounds_is_short_and_covers_everyone(count, most):
    rounds = chosen_rounds(count, most)
    assert len(rounds) <= max(most, 1 + count % 2)
    assert {player for played in rounds for pair in played for player in pair} == set(range(count))
    assert [played for played in tournament(count) if played in rounds] == rounds


def test_with_room_for_all_rounds_all_are_played_and_one_player_plays_none():
    assert chosen_rounds(9, 100) == tournament(9)
    assert chosen_rounds(1, 5) == []


@laws
@given(shuffled)
def test_groups_of_a_round_are_disjoint_and_lie_where_they_say(hosts):
    rounds = [*collective_rounds(hosts), *pair_rounds(hosts, 4)]
    for played in rounds:
        members = [rank for group in played.groups for rank in group.ranks]
        assert len(members) == len(set(members))
        for group in played.groups:
            counts = Counter(hosts[rank] for rank in group.ranks)
            assert len(group.ranks) > 1
            assert len(counts) == group.nodes
            assert set(counts.values()) == {group.local} or group.local == 0
            assert all(played.group_of(rank) is group for rank in group.ranks)
    names = [group.name for played in rounds for group in played.groups]
    assert len(names) == len(set(names))


@laws
@given(shuffled)
def test_all_hosts_and_all_ranks_are_measured(hosts):
    by_scope = {}
    for played in [*collective_rounds(hosts), *pair_rounds(hosts, 100)]:
        by_scope.setdefault(played.scope, []).extend(played.groups)
    crowded = {host for host, ranks in ranks_by_host(hosts).items() if len(ranks) > 1}
    assert {hosts[group.ranks[0]] for group in by_scope.get("node", [])} == crowded
    count = len(set(hosts))
    if count > 1:
        assert {rank for group in by_scope["nodes"] for rank in group.ranks} == set(range(len(hosts)))
        sizes = [group.nodes for group in by_scope["nodes"]]
        assert sizes == sorted(set(sizes))
        assert sizes[-1] == count
        met = {frozenset(hosts[rank] for rank in group.ranks) for group in by_scope["host pair"]}
        assert met == {frozenset(pair) for pair in combinations(set(hosts), 2)}


def test_neighbours_on_a_host_are_measured_in_groups_of_every_power_of_two():
    rounds = [r for r in collective_rounds(["a"] * 8 + ["b"] * 5) if r.scope == "part of node"]
    assert [[group.ranks for group in played.groups] for played in rounds] == [
        [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11)],
        [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11)],
    ]
    assert not [r for r in collective_rounds(["a", "a"]) if r.scope == "part of node"]


def test_rails_join_equal_local_numbers():
    hosts = ["a", "a", "b", "b", "c", "c"]
    rails = [g for r in collective_rounds(hosts) if r.scope == "rail" for g in r.groups if g.nodes == 3]
    assert [group.ranks for group in rails] == [(0, 2, 4), (1, 3, 5)]


@laws
@given(shuffled)
def test_partners_are_mutual_and_across_hosts_where_a_pair_of_hosts_exchanges(hosts):
    for played in pair_rounds(hosts, 100):
        for group in played.groups:
            for rank in group.ranks:
                other = partner(group, rank)
                assert other != rank
                assert partner(group, other) == rank
                assert (hosts[other] != hosts[rank]) == (played.scope == "host pair")


def test_ranks_that_are_dealt_out_in_turns_still_exchange_with_the_other_host():
    hosts = ["a", "b"] * 3
    (across,) = (played for played in collective_rounds(hosts) if played.scope == "nodes")
    (group,) = across.groups
    assert all(hosts[partner(group, rank)] != hosts[rank] for rank in group.ranks)


def test_the_last_of_an_odd_group_has_no_partner():
    (played,) = (r for r in collective_rounds(["a"] * 3) if r.scope == "node")
    assert [partner(played.groups[0], rank) for rank in range(3)] == [1, 0, None]
