"""Lists of models, devices and stacks: complete, searched without regard to case, with near names if empty."""

import sys

import pytest

from meshwright.cluster.catalog import device_ids
from meshwright.cluster.load import load_cluster
from meshwright.errors import InfeasibleError
from meshwright.frameworks.export_targets import STACK_OF_TARGET, TARGETS
from meshwright.model.describe import describe_model
from meshwright.model.load import load_model
from meshwright.model.zoo_names import zoo_names
from meshwright.stack.load import load_stack, stack_names
from meshwright.verbs.catalogue import list_devices, list_models, list_stacks


def names(rows, key="name"):
    return tuple(row[key] for row in rows)


def test_all_are_listed():
    assert names(list_models()) == zoo_names()
    assert names(list_devices(), "id") == device_ids()
    assert names(list_stacks()) == stack_names()


def test_a_model_has_the_figures_of_its_description():
    for row in list_models():
        described = describe_model(load_model(row["name"]))
        same = ("name", "family", "parameters", "parameters_active", "source")
        assert {key: described[key] for key in same} == {key: row[key] for key in same}
        assert row["layers"] == described["architecture"]["layers"]
        assert row["context"] == described["architecture"]["max_positions"]


def test_a_device_has_the_figures_of_its_cluster():
    for row in list_devices():
        cluster = load_cluster(f"{row['id']} x 1")
        (pool,) = cluster.pools
        assert row["memory_bytes"] == pool.device.memory_bytes
        assert row["peak_flops"] == pool.device.peak_flops
        assert row["usd_per_hour"] == cluster.usd_per_hour


def test_targets_run_on_the_stack_that_their_exporter_names():
    named = {name: sys.modules[exporter.__module__].TARGET for name, exporter in TARGETS.items()}
    assert named == STACK_OF_TARGET
    for row in list_stacks():
        assert row["release"] == load_stack(row["name"]).release


@pytest.mark.parametrize(
    ("listed", "search", "key", "some"),
    [
        (list_models, "QWEN3", "name", {"qwen3-8b", "qwen3-30b-a3b"}),
        (list_models, "meta-llama/", "name", {"llama-3.1-8b"}),
        (list_devices, "H100", "id", {"h100-sxm-80gb", "h100-pcie-80gb"}),
        (list_devices, "amd", "id", {"mi300x"}),
        (list_stacks, "Megatron", "name", {"megatron-core", "megatron-bridge"}),
        (list_stacks, "BRIDGE", "name", {"megatron-bridge"}),
    ],
)
def test_part_of_a_name_is_enough(listed, search, key, some):
    found = set(names(listed(search), key))
    assert some <= found < set(names(listed(), key))


@pytest.mark.parametrize(
    ("listed", "search", "near"),
    [
        (list_models, "lamma-3.1-8b", "llama-3.1-8b"),
        (list_devices, "h10o", "h100"),
        (list_stacks, "torchtitn", "torchtitan"),
        (list_models, "\u2603", "lists all"),
    ],
)
def test_where_nothing_is_found_the_nearest_is_suggested(listed, search, near):
    with pytest.raises(InfeasibleError) as caught:
        listed(search)
    assert near in caught.value.suggestion
    assert search in caught.value.message
