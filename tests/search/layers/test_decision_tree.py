"""The decision tree of strategies, against the counts that Galvatron publishes."""

from decision_tree import UNMIXED, stage_strategies, strategies


def test_counts_equal_those_of_the_paper():
    """arXiv 2211.13878, section 3.2: 34 candidates on 8 devices, 22 once pruned, 44 with checkpointing."""
    assert len(strategies(8, pruned=False)) == 34
    assert len(strategies(8)) == 22
    assert len(strategies(8, recompute=True)) == 44


def test_leaves_are_distinct_and_fill_the_devices():
    found = strategies(16, pruned=False)
    assert len(set(found)) == len(found)
    for pp, strategy, _ in found:
        degrees = [degree for _, degree in strategy]
        product = pp
        for degree in degrees:
            product *= degree
        assert product == 16
        assert len({axis for axis, _ in strategy}) == len(strategy)


def test_pruning_keeps_the_leaves_that_mix_no_two_kinds_of_data_parallelism():
    every = set(stage_strategies(8, pruned=False))
    assert set(stage_strategies(8)) == {leaf for leaf in every if not dict(leaf).keys() >= set(UNMIXED)}
