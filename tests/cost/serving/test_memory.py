"""Room for the cache against a sum by hand."""

import numpy as np
import pytest

from meshwright.cost.serving.hardware_times import serving_constants
from meshwright.cost.serving.memory import iteration_activation_bytes, kv_room_bytes
from meshwright.model.load import load_model
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.storage_formats import StorageFormats
from meshwright.program.serving.weight_bytes import rank_weight_bytes


def test_room_is_a_share_of_what_weights_activations_and_buffers_leave():
    model, degrees, formats = load_model("llama-3.1-70b"), ReplicaDegrees(tp=4), StorageFormats(weights="fp8")
    weights = rank_weight_bytes(model, degrees, formats)
    activations = iteration_activation_bytes(model, 8192, degrees)
    assert activations == 2 * 8192 * (serving_constants()["activation_copies"] * 8192 + 3 * 28672 / 4)
    left = 80e9 - weights - activations - serving_constants()["buffer_bytes"]
    assert kv_room_bytes(80e9, weights, activations, 0.9) == pytest.approx(0.9 * left)


def test_weights_that_do_not_fit_leave_negative_room():
    model = load_model("llama-3.1-405b")
    degrees = ReplicaDegrees(tp=np.array([1, 8]))
    weights = rank_weight_bytes(model, degrees, StorageFormats(weights="fp8"))
    activations = iteration_activation_bytes(model, 2048, degrees)
    room = kv_room_bytes(80e9, weights, activations, np.array([0.5, 0.5]))
    assert room[0] < 0 < room[1]


def test_the_cache_leaves_what_an_engine_cannot_ask_for():
    tight, loose = 5e9, 50e9
    weights = 80e9 - serving_constants()["buffer_bytes"] - np.array([tight, loose])
    assert kv_room_bytes(80e9, weights, 0.0, 0.9, 1e9) == pytest.approx([tight - 1e9, 0.9 * loose])
    assert kv_room_bytes(80e9, weights, 0.0, 0.9) == pytest.approx([0.9 * tight, 0.9 * loose])
