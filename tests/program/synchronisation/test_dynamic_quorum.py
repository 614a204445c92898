"""A dynamic quorum waits for as many replicas as pay for their time, and looks at all now and then."""

from meshwright.program.synchronisation.dynamic_quorum import EXPLORES, FIRST, DynamicQuorum


def chosen(times, steps, **keys):
    """The quorums of some steps with the same arrivals in each."""
    quorum, found = DynamicQuorum(len(times), **keys), []
    for _ in range(steps):
        found.append(quorum.quorum)
        quorum.observe(sorted(times)[: quorum.quorum])
    return found


def test_the_first_steps_wait_for_all():
    assert chosen([1, 1, 1, 50], FIRST) == [4] * FIRST


def test_one_slow_replica_is_left_out_and_looked_at_again():
    found = chosen([1, 1.1, 1.2, 50], 3 * EXPLORES)
    assert set(found[FIRST:]) == {3, 4}
    assert found[FIRST:].count(4) <= 3
    assert found[EXPLORES] == 4


def test_equal_replicas_are_all_waited_for():
    assert set(chosen([1.0] * 4, 30)) == {4}


def test_noisy_gradients_are_worth_waiting_for():
    assert chosen([1, 1.5, 2, 2.5], FIRST + 1, noise=0.1)[-1] == 1
    assert chosen([1, 1.5, 2, 2.5], FIRST + 1, noise=1.9)[-1] > 2
    assert chosen([1, 1.5, 2, 2.5], FIRST + 1, noise=100)[-1] == 4


def test_rules_that_need_rows_keep_them():
    assert min(chosen([1, 9, 9, 90, 90], 30, least=3)) == 3
