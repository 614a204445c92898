"""Small numbers of rules that combine gradients: legal for the replicas of a proof, and still what they are."""

import pytest

from meshwright.plans.files.plan_file import parse_plan
from meshwright.plans.shrink.small_combinations import small_replicas, with_small_numbers

PLAN = """plan: 1
model: llama-3.2-1b
cluster: h100-sxm-80gb x 8
workload: {seq_len: 128, global_batch: 8}
stack: meshwright
layout: {dp_replicate: 8}
synchronise: [{state: gradient, over: dp_replicate, %s}]
"""


def entry(text):
    (found,) = parse_plan(PLAN % text).synchronise
    return found


@pytest.mark.parametrize(
    ("text", "degree", "small"),
    [
        ("combine: median", 8, 3),
        ("combine: median", 2, 2),
        ("with: {quorum: 5}", 8, 3),
        ("with: {quorum: dynamic}", 8, 3),
        ("combine: {krum: 1}, with: {quorum: 6}", 8, 4),
        ("combine: {coded: {tolerate: 2}}", 8, 3),
        ("compress: {quantise: int8}", 8, 2),
    ],
)
def test_replicas_of_a_proof(text, degree, small):
    assert small_replicas([entry(text)], "dp_replicate", degree) == small
    assert small_replicas([entry(text)], "dp_shard", degree) == 2


@pytest.mark.parametrize(
    ("text", "small", "expected"),
    [
        ("with: {quorum: 5}", 3, "with: {quorum: 2}"),
        ("with: {quorum: 8}", 3, "with: {quorum: 3}"),
        ("with: {quorum: dynamic}", 3, "with: {quorum: dynamic}"),
        ("combine: {trimmed_mean: 3}", 3, "combine: {trimmed_mean: 1}"),
        ("combine: {trimmed_mean: 0}", 3, "combine: {trimmed_mean: 0}"),
        ("combine: {krum: 2}", 3, "combine: {krum: 0}"),
        ("combine: {flag: {rank: 4}}", 3, "combine: {flag: {rank: 2}}"),
        ("combine: {flag: {rank: 8}}", 3, "combine: {flag: {rank: 3}}"),
        ("combine: {coded: {tolerate: 7}}", 3, "combine: {coded: {tolerate: 2}}"),
        ("combine: {coded: {tolerate: 3}}", 3, "combine: {coded: {tolerate: 1}}"),
        ("combine: {krum: 1}, with: {quorum: 6}", 4, "combine: {krum: 0}, with: {quorum: 3}"),
    ],
)
def test_numbers_of_rules(text, small, expected):
    assert with_small_numbers(entry(text), 8, small) == entry(expected)
    assert with_small_numbers(entry(text), 8, 8) == entry(text)
