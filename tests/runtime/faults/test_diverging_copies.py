from meshwright.runtime.faults.diverging_copies import Copies, diverging


def copies(changed, ranks=3, at=5, steps=range(2, 9)):
    behind = {
        rank: {step: 100 + step + (7 * (1 + rank) if rank in changed and step >= at else 0) for step in steps}
        for rank in range(ranks)
    }
    names = {rank: {"a": 1, "b": 2 + (rank in changed) * rank} for rank in range(ranks)}
    return Copies(behind, names)


def test_a_majority_names_the_rank_and_the_first_step():
    (fault,) = diverging(copies({1}))
    assert (fault.kind, fault.rank, fault.step) == ("diverge", 1, 5)
    assert fault.evidence == "its copy of b differs from that of ranks 0, 2 since step 5, one of 3 copies"


def test_of_two_copies_both_are_named():
    assert [(of.rank, of.step) for of in diverging(copies({1}, ranks=2))] == [(0, 5), (1, 5)]


def test_without_a_majority_all_are_named():
    assert [of.rank for of in diverging(copies({1, 2}))] == [0, 1, 2]


def test_copies_that_differed_before_the_first_kept_step_are_named_with_it():
    assert diverging(copies({2}, at=0))[0].step == 2


def test_equal_copies_are_no_fault():
    assert not diverging(copies(()))


def test_between_two_fingerprints_the_first_step_that_may_be_affected_counts():
    found = copies({1}, at=12, steps=range(0, 20, 6))
    assert diverging(found)[0].step == 7
    assert diverging(copies({1}, at=0, steps=range(6, 20, 6)), equal_step=3)[0].step == 4
