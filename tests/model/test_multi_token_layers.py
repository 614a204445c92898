"""Layers that predict further tokens: left out as in published counts, or planned, and what they then count."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import meshwright.model
from meshwright.errors import InputError
from meshwright.model.describe import describe_model
from meshwright.model.families.architecture_table import read_architecture
from meshwright.model.load import load_model
from meshwright.model.named_tensors import runnable_numerics
from meshwright.model.operators.blocks import build_graph
from meshwright.model.operators.multi_token_prediction import without_next_tokens
from meshwright.model.operators.operator_types import Loss
from meshwright.model.transforms.shrunk_model import shrunk_model
from meshwright.program.local_shape import LocalShape
from meshwright.program.model_states.state_elements import block_elements

ZOO = Path(meshwright.model.__file__).parent / "zoo"
ASKED = {"train_nextn_predict_layers": True}


def with_further(name="deepseek-v3", **changes):
    config = json.loads((ZOO / f"{name}.json").read_text())
    return build_graph(read_architecture({**config, **ASKED, **changes}, name, "here"))


PLAIN, FURTHER = load_model("deepseek-v3"), with_further()


def test_they_are_left_out_and_that_is_said():
    told = describe_model(PLAIN)
    (said,) = told["left_out"]
    assert said.startswith("num_nextn_predict_layers = 1")
    assert "train_nextn_predict_layers" in said
    assert told["architecture"]["next_token_layers"] == 0
    assert describe_model(load_model("kimi-k2"))["left_out"] == []
    assert describe_model(FURTHER)["left_out"] == []


def test_the_main_model_alone_is_that_without_them():
    told = {"source": "", "assumed": (), "left_out": ()}
    plain, main = PLAIN.architecture, without_next_tokens(FURTHER.architecture)
    assert replace(main, **told) == replace(plain, **told)
    assert (FURTHER.architecture.main_layers, plain.main_layers) == (61, 61)


def test_a_layer_has_a_projection_three_norms_and_all_of_a_decoder_layer():
    layer = PLAIN.blocks[2].parameters
    further = FURTHER.parameters - PLAIN.parameters
    assert further == layer + 2 * 7168**2 + 3 * 7168
    # README_WEIGHTS.md of deepseek-ai/DeepSeek-V3: 11.5 B unique, 2.4 B active with the tables of both ends
    assert further == pytest.approx(11.5e9, rel=0.011)
    ends = 2 * 7168 * 129280
    active = FURTHER.parameters_active - PLAIN.parameters_active + ends
    assert active == pytest.approx(2.4e9, rel=0.06)


def test_its_flops_are_those_of_a_layer_the_projection_and_the_head():
    found = FURTHER.flops_per_token_forward(4096) - PLAIN.flops_per_token_forward(4096)
    layer = PLAIN.blocks[2].flops_per_token_forward(4096, causal=False)
    assert found == pytest.approx(layer + 2 * (2 * 7168**2) + 2 * 7168 * 129280, rel=1e-12)


def test_it_is_a_block_of_its_own_at_the_end_of_the_layers():
    names = [(FURTHER.blocks[index].name, repeat) for index, repeat in FURTHER.chain]
    assert names == [("embed", 1), ("dense", 3), ("moe", 58), ("next-token-moe", 1), ("head", 1)]
    assert FURTHER.architecture.layers == 62
    losses = [op for block in FURTHER.blocks for op in block.operators if isinstance(op, Loss)]
    assert [op.name for op in losses] == ["next_loss", "loss"]


def test_the_embeddings_table_is_copied_where_it_is_not_anyway():
    table = 129280 * 7168
    three = with_further(num_nextn_predict_layers=3)
    blocks, shape = three.blocks, LocalShape(micro_batch=1, seq_len=4096, cp=1, tp=1, ep=1, etp=1)
    assert [block.name for block in blocks[3:5]] == ["next-token-moe", "next-tokens-moe"]
    apart, together = (block_elements(blocks, shape, ends_together=ends) for ends in (False, True))
    assert apart[3].dense - together[3].dense == table
    assert apart[4].dense == together[4].dense == together[3].dense
    unique = blocks[2].parameters + 2 * 7168**2 + 3 * 7168
    assert three.parameters - PLAIN.parameters == 3 * unique


@pytest.mark.parametrize("key", ["num_nextn_predict_layers", "num_mtp_layers"])
def test_both_names_of_the_key_are_read(key):
    other = {"num_nextn_predict_layers": None, key: 2}
    assert with_further("glm-4.5-air", **other).architecture.next_token_layers == 2


def test_such_a_model_is_run_and_a_wrong_number_is_refused():
    assert runnable_numerics(FURTHER.architecture) == FURTHER.architecture.numerics
    for wrong in ({"num_nextn_predict_layers": -1}, {"mtp_loss_scaling_factor": 0}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            with_further(**wrong)


def test_losses_count_their_share_of_a_weight():
    def weights(model):
        return {
            op.name: op.weight for block in model.blocks for op in block.operators if isinstance(op, Loss)
        }

    assert weights(FURTHER) == {"next_loss": 0.3, "loss": 1.0}
    three = with_further(num_nextn_predict_layers=3, mtp_loss_scaling_factor=0.6)
    assert weights(three) == {"next_loss": pytest.approx(0.2), "loss": 1.0}


def test_a_small_copy_keeps_them_at_the_end():
    three = with_further(num_nextn_predict_layers=3)
    for last, kept in ((1, 1), (2, 2), (4, 2)):
        small = shrunk_model(three, layers=6, last=last, tp=1, seq_len=16, full_seq_len=4096)
        assert small.architecture.next_token_layers == kept
        further = [small.blocks[index].predicts_further for index in small.layer_blocks]
        assert further == [False] * (6 - kept) + [True] * kept


def test_a_tied_table_counts_once():
    tied = replace(FURTHER.architecture, tied_embeddings=True)
    plain = replace(PLAIN.architecture, tied_embeddings=True)
    assert (
        build_graph(tied).parameters - build_graph(plain).parameters == FURTHER.parameters - PLAIN.parameters
    )
