import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.model.load import load_model
from meshwright.program.expert_dispatch.expert_load import expert_load, popularity
from meshwright.workload.expert_routing import Routing
from meshwright.workload.workload import Workload

MIXTRAL, DEEPSEEK = (load_model(name).architecture for name in ("mixtral-8x7b", "deepseek-v3"))
WORKLOAD = Workload(seq_len=4096, global_batch=8)


def busiest(workload, arch, ep, order=None):
    return expert_load(workload, arch, ep, 1, order).busiest


def said(what):
    return replace(WORKLOAD, routing=Routing(what))


def test_nothing_said_and_nobody_to_choose_are_nothing():
    assert busiest(WORKLOAD, MIXTRAL, 4) is None
    assert busiest(said("balanced"), load_model("llama-3.1-8b").architecture, 4) is None


@pytest.mark.parametrize("what", ["balanced", 0.0, ((3,) * 8,)])
@pytest.mark.parametrize("ep", [1, 2, 8])
def test_all_ranks_are_alike_where_all_experts_are(what, ep):
    assert busiest(said(what), MIXTRAL, ep) == pytest.approx(1, abs=1e-12)


@given(st.integers(0, 10**6), st.sampled_from((1, 2, 4, 8)))
@settings(max_examples=50)
def test_of_counts_it_is_the_mean_of_the_layers_busiest_ranks(seed, ep):
    draw = random.Random(seed)
    counts = tuple(tuple(float(draw.randint(1, 99)) for _ in range(8)) for _ in range(3))
    wide, ratios = 8 // ep, []
    for row in counts:
        ranks = [sum(row[at : at + wide]) for at in range(0, 8, wide)]
        ratios.append(max(ranks) / (sum(row) / ep))
    assert busiest(said(counts), MIXTRAL, ep) == pytest.approx(sum(ratios) / 3)


@given(st.floats(0, 8), st.integers(1, 64), st.data())
@settings(max_examples=100)
def test_popularity_is_a_falling_share_of_what_a_token_chooses(skew, experts, data):
    chosen = data.draw(st.integers(1, experts))
    found = popularity(skew, experts, chosen)
    assert found.sum() == pytest.approx(chosen)
    assert (np.diff(found) <= 1e-12).all()
    assert 0 < found.min() <= found.max() <= 1


def test_without_a_bound_it_is_zipfs_law():
    assert popularity(1.0, 4, 1) == pytest.approx(np.array([12, 6, 4, 3]) / 25)
    assert popularity(1.0, 3, 2) == pytest.approx([1, 0.6, 0.4])


def test_a_skew_is_what_many_orders_of_experts_show():
    falling, draw, ratios = popularity(0.7, 256, 8).tolist(), random.Random(3), []
    for _ in range(2000):
        draw.shuffle(falling)
        ratios.append(max(sum(falling[at : at + 8]) for at in range(0, 256, 8)) / (8 / 32))
    assert busiest(said(0.7), DEEPSEEK, 32) == pytest.approx(sum(ratios) / 2000, rel=0.02)


def test_more_skew_and_more_ranks_make_the_busiest_busier():
    of_skews = [busiest(said(skew), DEEPSEEK, 32) for skew in (0.0, 0.3, 0.6, 1.0)]
    of_ranks = [busiest(said(0.6), DEEPSEEK, ep) for ep in (1, 4, 32, 256)]
    assert of_skews == sorted(of_skews)
    assert of_ranks == sorted(of_ranks)
    assert of_ranks[-1] == pytest.approx(popularity(0.6, 256, 8)[0] * 256 / 8)


@given(st.integers(0, 10**6))
@settings(max_examples=20)
def test_an_order_has_the_rows_of_its_experts(seed):
    draw = random.Random(seed)
    rows = tuple(tuple(float(draw.randint(1, 99)) for _ in range(8)) for _ in range(2))
    orders = tuple(tuple(draw.sample(range(8), 8)) for _ in range(2))
    moved = tuple(tuple(row[expert] for expert in order) for row, order in zip(rows, orders, strict=True))
    assert busiest(said(rows), MIXTRAL, 4, orders) == pytest.approx(busiest(said(moved), MIXTRAL, 4))
    one = tuple(tuple(row[expert] for expert in orders[0]) for row in rows)
    assert busiest(said(rows), MIXTRAL, 4, orders[:1]) == pytest.approx(busiest(said(one), MIXTRAL, 4))
    assert busiest(said(0.7), MIXTRAL, 4, orders) == busiest(said(0.7), MIXTRAL, 4)
