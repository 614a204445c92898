"""Bytes of weights against counted parameters, by format and layout."""

import numpy as np
import pytest

from meshwright.model.load import load_model
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.storage_formats import StorageFormats
from meshwright.program.serving.weight_bytes import rank_weight_bytes


def test_one_rank_in_16_bit_holds_all_parameters():
    model = load_model("llama-3.1-70b")
    assert rank_weight_bytes(model, ReplicaDegrees(), StorageFormats()) == 2 * model.parameters


def test_a_tied_table_is_held_once_on_one_stage_and_twice_on_two():
    model = load_model("llama-3.2-1b")
    table = 2 * model.architecture.vocab * model.architecture.hidden
    one, two = rank_weight_bytes(model, ReplicaDegrees(pp=np.array([1, 2])), StorageFormats())
    assert one == 2 * model.parameters
    norm = 2 * model.architecture.hidden
    assert two == (one - table - norm) / 2 + table + norm  # the last stage also has the final norm


def test_fp8_leaves_tables_and_norms_in_16_bit():
    model = load_model("llama-3.1-8b")
    arch = model.architecture
    tables = 2 * arch.vocab * arch.hidden
    norms = (2 * arch.layers + 1) * arch.hidden
    matrices = model.parameters - tables - norms
    expected = matrices + 2 * (tables + norms)
    assert rank_weight_bytes(model, ReplicaDegrees(), StorageFormats(weights="fp8")) == expected


@pytest.mark.parametrize(("name", "bits"), [("fp4", 4.5), ("mxfp4", 4.25), ("int4", 4.15625)])
def test_four_bit_formats_hold_the_experts_of_a_model_that_has_them(name, bits):
    model = load_model("gpt-oss-120b")
    moe = model.architecture.moe
    hidden, width = model.architecture.hidden, moe.intermediate
    of_experts = 36 * moe.experts * (3 * hidden * width + 2 * width + hidden)  # with their biases
    expected = bits / 8 * of_experts + 2 * (model.parameters - of_experts)
    found = rank_weight_bytes(model, ReplicaDegrees(), StorageFormats(weights=name))
    assert found == pytest.approx(expected, rel=1e-12)


def test_experts_are_cut_over_ep_and_etp_and_the_rest_over_tp():
    model = load_model("mixtral-8x7b")
    whole = rank_weight_bytes(model, ReplicaDegrees(), StorageFormats())
    cut = [
        rank_weight_bytes(model, ReplicaDegrees(tp=4, ep=ep, etp=4 // ep), StorageFormats()) for ep in (1, 4)
    ]
    apart = rank_weight_bytes(model, ReplicaDegrees(attention_dp=4, ep=4), StorageFormats())
    assert cut[0] == pytest.approx(cut[1], rel=1e-12)
    assert whole / 4 < cut[0] < 1.01 * whole / 4  # norms and routers are whole
    experts = 2 * 32 * 8 * 3 * 4096 * 14336
    assert apart == whole - experts * 3 / 4
