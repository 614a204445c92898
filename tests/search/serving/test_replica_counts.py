"""Numbers of replicas: all small ones, and those of every part of a cluster, many times over."""

from hypothesis import given
from hypothesis import strategies as st

from meshwright.search.serving.replica_counts import MOST_EACH, divisors, replica_counts

SIZES = {"devices": st.integers(1, 400), "size": st.integers(1, 40)}


@given(**SIZES)
def test_few_replicas_are_all_tried(devices, size):
    most = devices // size
    assert set(range(1, min(most, MOST_EACH) + 1)) <= set(replica_counts(devices, size))
    assert all(1 <= count <= most for count in replica_counts(devices, size))
    assert (most in replica_counts(devices, size)) == (most > 0)


@given(**SIZES, times=st.integers(1, 8))
def test_a_number_many_times_over_is_one_of_many_times_the_devices(devices, size, times):
    more = set(replica_counts(times * devices, size))
    assert {times * count for count in replica_counts(devices, size)} <= more


@given(number=st.integers(1, 5000))
def test_divisors(number):
    assert divisors(number) == tuple(size for size in range(1, number + 1) if number % size == 0)
