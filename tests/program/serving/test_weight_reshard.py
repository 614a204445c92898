"""A change of layout loads what a device needs and lacks: laws of weights, and counts by hand."""

import pytest

from meshwright.model.load import load_model
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.storage_formats import StorageFormats
from meshwright.program.serving.weight_bytes import rank_weight_bytes
from meshwright.program.serving.weight_reshard import reloaded_weight_bytes

BF16 = StorageFormats()
LAYER_13B = 2 * (4 * 5120 * 5120 + 3 * 5120 * 13824)
"""Bytes of the matrices of a layer of Llama 2 13B."""
NORMS_13B = 2 * 2 * 5120
TABLE_13B = 2 * 32000 * 5120


def loaded(model, before, after, formats=BF16):
    return reloaded_weight_bytes(
        load_model(model), formats, ReplicaDegrees(**before), ReplicaDegrees(**after)
    )


@pytest.mark.parametrize(
    ("model", "degrees"),
    [
        ("llama-2-13b", {"tp": 4}),
        ("llama-3.2-1b", {"pp": 2, "tp": 2}),
        ("deepseek-v3", {"attention_dp": 8, "tp": 2, "ep": 8, "etp": 2}),
    ],
)
def test_equal_layouts_load_nothing(model, degrees):
    assert loaded(model, degrees, degrees) == 0


def test_from_stages_to_tensor_ranks_a_device_keeps_its_part_of_the_layers_that_it_had():
    """From pp 4 to tp 4: 10 of 40 layers are held whole, of the other 30 a quarter is loaded, and of tables."""
    layers = 30 * (LAYER_13B / 4 + NORMS_13B)
    found = loaded("llama-2-13b", {"pp": 4}, {"tp": 4})
    assert found == layers + 2 * TABLE_13B / 4 + 2 * 5120  # a middle stage has no table and no last norm
    back = loaded("llama-2-13b", {"tp": 4}, {"pp": 4})
    assert back == 10 * LAYER_13B * 3 / 4 + TABLE_13B * 3 / 4


def test_pieces_that_lie_elsewhere_are_loaded_whole():
    """The last rank of tp 2 becomes that of tp 4 and keeps its piece; the second one moves to another half."""
    found = loaded("llama-2-13b", {"attention_dp": 2, "tp": 2}, {"tp": 4})
    assert found == 40 * LAYER_13B / 4 + 2 * TABLE_13B / 4


@pytest.mark.parametrize(
    ("model", "before", "after"),
    [
        ("llama-3.1-70b", {"pp": 4, "tp": 2}, {"tp": 8}),
        ("codellama-34b", {"tp": 2, "pp": 4}, {"tp": 4, "pp": 2}),
        ("deepseek-v3", {"pp": 4, "tp": 4, "ep": 4}, {"attention_dp": 16, "ep": 16}),
    ],
)
def test_never_more_than_the_new_weights_nor_less_than_they_grow(model, before, after):
    graph, found = load_model(model), loaded(model, before, after)
    new, old = (rank_weight_bytes(graph, ReplicaDegrees(**one), BF16) for one in (after, before))
    assert max(0, new - old) <= found <= new
    assert found > 0


def test_a_tied_table_is_held_once():
    """Both stages hold the table: the first as embedding, the last as head, which one layout of tp alone shares."""
    arch = load_model("llama-3.2-1b").architecture
    matrices = 2 * arch.hidden * 2048 + 2 * arch.hidden * 512 + 3 * arch.hidden * arch.intermediate
    norms = 2 * arch.hidden
    found = loaded("llama-3.2-1b", {"pp": 2}, {"tp": 2})
    assert found == 2 * (8 * (matrices / 2 + norms) + arch.hidden)  # the first stage lacks the last norm


def test_experts_move_between_meshes():
    """From etp to ep a device has some columns of all experts, and needs all columns of some."""
    found = loaded("mixtral-8x7b", {"tp": 8, "etp": 8}, {"tp": 8, "ep": 8})
    experts = 2 * 3 * 4096 * 14336
    assert found == 32 * experts * 7 / 8


def test_narrower_weights_load_fewer_bytes():
    plain, narrow = (
        loaded("llama-3.1-8b", {"pp": 4}, {"tp": 4}, StorageFormats(weights=name)) for name in ("bf16", "fp8")
    )
    assert plain / 2 < narrow < plain
