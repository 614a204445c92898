"""A hand-over moves every byte that the receiver holds, once to each rank, from a rank that has it."""

import pytest
from replica_draws import draw

from meshwright.model.load import load_model
from meshwright.program.serving.cache_reshard import Place, cache_moves, hand_over_bytes
from meshwright.program.serving.kv_bytes import replica_bytes_per_token
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.storage_formats import StorageFormats

BF16 = StorageFormats()
LAYER = 2 * 128 * 2
"""Bytes of a head of a token of Llama 3.1."""


def moves(name, sender, receiver, tokens=64, block=1):
    places = Place(ReplicaDegrees(**sender)), Place(ReplicaDegrees(**receiver), 1000)
    return list(cache_moves(load_model(name), tokens, BF16, *places, block))


def test_ranks_of_half_the_tp_take_from_two_ranks_each():
    found = moves("llama-3.1-8b", {"tp": 8}, {"tp": 4})
    assert {(move.source, move.target) for move in found} == {(rank, 1000 + rank // 2) for rank in range(8)}
    assert {move.size_bytes for move in found} == {32 * 64 * LAYER}


def test_stages_take_the_layers_that_they_have():
    found = moves("llama-3.1-8b", {"pp": 2, "tp": 2}, {"tp": 1})
    assert {(move.source, move.size_bytes) for move in found} == {(r, 16 * 64 * LAYER) for r in range(4)}
    assert len(found) == 4 * 4  # heads of four ranks


def test_blocks_of_cp_are_collected():
    found = moves("llama-3.1-8b", {"cp": 2}, {"tp": 8}, tokens=80, block=16)
    by_source = {rank: sum(m.size_bytes for m in found if m.source == rank) for rank in (0, 1)}
    assert by_source == {0: 3 * 16 * 8 * 32 * LAYER, 1: 2 * 16 * 8 * 32 * LAYER}


def test_holders_of_a_latent_cache_take_turns_and_every_rank_of_the_receiver_gets_a_copy():
    model, tokens = load_model("deepseek-v3"), 100
    whole = 61 * 576 * 2 * tokens
    moved = hand_over_bytes(model, tokens, BF16, ReplicaDegrees(tp=4), ReplicaDegrees(tp=8, etp=8), 8)
    assert moved == (8 * whole, 0, 2 * whole)
    moved = hand_over_bytes(model, tokens, BF16, ReplicaDegrees(tp=8), ReplicaDegrees(attention_dp=8), 8)
    assert moved == (whole, 0, whole)


def test_replicas_within_one_domain_hand_over_inside_of_it():
    degrees = ReplicaDegrees(tp=4)
    moved = hand_over_bytes(load_model("llama-3.1-8b"), 10, BF16, degrees, degrees, 8)
    assert moved == (10 * 32 * 8 * LAYER, 10 * 32 * 2 * LAYER, 0)


@pytest.mark.parametrize("seed", range(20))
def test_the_receiver_gets_what_its_ranks_hold(seed):
    sender, receiver = draw(seed), draw(seed + 30)  # of one model
    assert sender.model == receiver.model
    model, formats, degrees = sender.cost.model, sender.cost.formats, receiver.cost.degrees
    one, two = (
        hand_over_bytes(model, tokens, formats, sender.cost.degrees, degrees, 8).total for tokens in (16, 40)
    )
    assert two - one == pytest.approx(24 * replica_bytes_per_token(model, degrees, formats), rel=1e-12)
