"""Lengths of requests: means, the longest, and requests of one written token."""

from meshwright.workload.serving.request_lengths import RequestLengths


def test_fixed_lengths_are_their_own_means():
    lengths = RequestLengths.fixed(4000, 1000, 64)
    assert lengths.pairs == ((4000, 1000, 1.0),)
    assert (lengths.mean_input, lengths.mean_output, lengths.longest) == (4000, 1000, 5000)
    assert lengths.prefix_tokens == 64


def test_means_weigh_by_share():
    lengths = RequestLengths(((100, 10, 0.9), (2100, 1, 0.1)))
    assert (lengths.mean_input, lengths.mean_output) == (300, 9.1)
    assert lengths.longest == 2101


def test_one_written_token_is_prefill_alone():
    assert RequestLengths.fixed(8, 1).prefill_only
    assert not RequestLengths.fixed(8, 2).prefill_only
    assert not RequestLengths(((8, 1, 0.5), (8, 2, 0.5))).prefill_only
