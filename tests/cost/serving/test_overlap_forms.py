"""Forms of overlap and of all-reduces: bounds that hold for all of them, and limits where they are exact."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.load import load_cluster
from meshwright.cost.serving.all_reduce_forms import ALL_REDUCE_FORMS
from meshwright.cost.serving.hardware_times import serving_times_for
from meshwright.cost.serving.iteration import ReplicaCost, iteration_seconds
from meshwright.cost.serving.operators import IterationLoad
from meshwright.cost.serving.overlap_forms import FORMS, block_form_seconds, serial_seconds, together
from meshwright.model.load import load_model
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.storage_formats import StorageFormats

H100 = serving_times_for(load_cluster("h100-sxm-80gb x 64").pool)
A100 = serving_times_for(load_cluster("a100-sxm-80gb x 64").pool)
DENSE = load_model("llama-3.1-70b")
LONG_PROMPT = IterationLoad(prompt_tokens=4096.0, prompt_positions=2048.0, prompts=1.0)
DECODES = IterationLoad(sequences=16.0, context=1000.0)


def replica(tp=8.0, times=H100, model=DENSE, **forms):
    return ReplicaCost(
        model=model, times=times, degrees=ReplicaDegrees(tp=tp), formats=StorageFormats(), **forms
    )


def seconds(load, **of_replica):
    return float(iteration_seconds(replica(**of_replica), load))


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=25, deadline=None)
@given(
    prompts=st.sampled_from([0.0, 1.0, 100.0, 1024.0, 16384.0]),
    sequences=st.sampled_from([0.0, 0.5, 1.0, 16.0, 100.0, 512.0]),
    context=st.floats(1, 32768),
    tp=st.sampled_from([1.0, 2.0, 8.0, 16.0]),
)
def test_no_form_is_slower_than_none(form, prompts, sequences, context, tp):
    load = IterationLoad(
        prompt_tokens=prompts,
        prompt_positions=prompts / 2,
        prompts=1.0,
        sequences=sequences,
        context=context,
    )
    plain, overlapped = (seconds(load, tp=tp, overlap=name) for name in ("none", form))
    assert plain / 3 < overlapped <= plain * (1 + 1e-12)


@pytest.mark.parametrize("form", ["two-batch", "tile"])
def test_one_device_has_nothing_to_overlap(form):
    assert seconds(LONG_PROMPT, tp=1.0, overlap=form) == pytest.approx(
        seconds(LONG_PROMPT, tp=1.0), rel=1e-12
    )


def test_batches_that_read_weights_are_not_split():
    assert seconds(DECODES, overlap="two-batch") == seconds(DECODES)


def test_a_long_prompt_hides_collectives_in_two_batches():
    block = DENSE.blocks[DENSE.layer_blocks[0]]
    whole = replica().local(LONG_PROMPT)
    found = block_form_seconds(block, whole, "two-batch")
    assert float(found) < 0.9 * float(serial_seconds(block, whole))


@settings(max_examples=200, deadline=None)
@given(kernels=st.floats(0, 10), collectives=st.floats(0, 10), slowdown=st.floats(0, 1))
def test_two_at_once_take_as_long_as_the_longer_and_no_longer_than_both(kernels, collectives, slowdown):
    found = float(together(kernels, collectives, slowdown))
    assert max(kernels, collectives) <= found <= kernels + collectives + 1e-12


def played(segments, layers):
    """Return the seconds of two halves whose kernels and collectives take turns on two streams."""
    compute = network = 0.0
    ready = [0.0, 0.0]
    for kernels, collective in segments * layers:
        for half in (0, 1):
            compute = max(compute, ready[half]) + kernels
            network = max(network, compute) + collective
            ready[half] = network
    return max(compute, network)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=1, max_size=4))
def test_the_sum_over_segments_bounds_two_streams_that_are_played(segments):
    following = [*segments[1:], segments[0]]
    closed = sum(
        float(together(kernels, collective, 0.0) + together(next_kernels, collective, 0.0))
        for (kernels, collective), (next_kernels, _) in zip(segments, following, strict=True)
    )
    layers = 40
    begin_and_end = sum(kernels + collective for kernels, collective in segments)
    found = played(segments, layers)
    assert found <= layers * closed + begin_and_end + 1e-9
    busiest = max(2 * sum(kernels for kernels, _ in segments), 2 * sum(x for _, x in segments))
    assert closed >= busiest - 1e-9


@pytest.mark.parametrize("form", ALL_REDUCE_FORMS)
@pytest.mark.parametrize("times", [H100, A100])
def test_an_all_reduce_of_one_rank_or_of_nothing_takes_no_time(form, times):
    found = ALL_REDUCE_FORMS[form](times, np.array([1e6, 0.0, 0.0]), np.array([1.0, 8.0, 32.0]))
    assert np.all(np.asarray(found) == 0)


@pytest.mark.parametrize("form", ALL_REDUCE_FORMS)
def test_an_all_reduce_takes_longer_for_more_bytes(form):
    found = np.asarray(ALL_REDUCE_FORMS[form](H100, np.geomspace(1e3, 1e9, 40), np.full(40, 32.0)))
    assert np.all(np.diff(found) > 0)


def test_recursive_doubling_wins_for_short_messages_between_nodes_only():
    short, ranks = np.array([128e3, 512e3, 2e6]), np.full(3, 16.0)
    quick, library = (ALL_REDUCE_FORMS[name](A100, short, ranks) for name in ("recursive-doubling", "auto"))
    assert np.all(np.asarray(quick) < np.asarray(library))
    inside = np.full(3, 8.0)
    same = (ALL_REDUCE_FORMS[name](A100, short, inside) for name in ("recursive-doubling", "auto"))
    np.testing.assert_array_equal(*same)
    long_rings = ALL_REDUCE_FORMS["ring"](A100, short, np.full(3, 64.0))
    assert np.all(
        np.asarray(long_rings) > np.asarray(ALL_REDUCE_FORMS["tree"](A100, short, np.full(3, 64.0)))
    )
