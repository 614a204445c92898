from hypothesis import given
from hypothesis import strategies as st

from meshwright.program.synchronisation.bucket_owners import bucket_runs

STRETCHES = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 20)), min_size=1, max_size=5)


def _buckets(run, bucket):
    return range(run.bucket, run.bucket - (-run.elements // bucket))


@given(STRETCHES, st.integers(1, 7))
def test_runs_hold_every_bucket_once_in_order_and_are_balanced_to_a_bucket(sizes, ranks):
    stretches = [(number, elements, min(bucket, elements)) for number, (elements, bucket) in enumerate(sizes)]
    runs = bucket_runs(stretches, ranks)
    assert len(runs) == ranks
    dealt = [
        (run.stretch, bucket)
        for own in runs
        for run in own
        for bucket in _buckets(run, stretches[run.stretch][2])
    ]
    assert dealt == [
        (number, place) for number, elements, bucket in stretches for place in range(-(-elements // bucket))
    ]
    held = [sum(run.elements for run in own) for own in runs]
    total = sum(elements for elements, _ in sizes)
    assert sum(held) == total
    largest = max(bucket for _, _, bucket in stretches)
    assert all(abs(own - total / ranks) <= largest for own in held)


def test_one_bucket_goes_to_the_rank_of_its_middle():
    assert [len(own) for own in bucket_runs([(0, 10, 10)], 4)] == [0, 0, 1, 0]
