"""Optimizers with their options come back from Megatron's and Megatron-Bridge's files."""

import pytest

from meshwright.api import import_file
from meshwright.cli.terminal.output import write_tree
from meshwright.cluster.load import load_cluster
from meshwright.errors import UnsupportedError
from meshwright.frameworks.export_targets import TARGETS
from meshwright.model.load import load_model
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.short import ShortPlan
from meshwright.stack.load import load_stack
from meshwright.verbs.import_ import ImportRequest

MODEL, CLUSTER = "llama-3.1-8b", "h100-sxm-80gb x 8"
FILES = {
    "megatron": ("megatron-core", "megatron/args.sh"),
    "bridge": ("megatron-bridge", "bridge/overrides.yaml"),
}
STACKS = {"torchtitan": "torchtitan", "deepspeed": "deepspeed"} | {
    key: name for key, (name, _) in FILES.items()
}


def exported(target, optimizer):
    plan = ShortPlan.model_validate(
        {
            "plan": 1,
            "model": MODEL,
            "cluster": CLUSTER,
            "workload": {"seq_len": 4096, "global_batch": 64, "optimizer": optimizer},
            "stack": STACKS[target],
            "layout": {"dp_shard": 8},
            "sharding": "zero1",
        }
    )
    model, stack = load_model(MODEL), load_stack(STACKS[target])
    return TARGETS[target](expand(plan, model.architecture), model, load_cluster(CLUSTER), stack)


@pytest.mark.parametrize("target", FILES)
@pytest.mark.parametrize(
    "optimizer",
    [
        "adamw",
        "sgd",
        "lion",
        "muon",
        {"name": "sgd", "momentum": 0.9},
        {"name": "muon", "steps": 7, "momentum": 0.9, "nesterov": False},
        {"name": "muon", "scale": "match-rms-adamw", "tensor": "duplicated", "others": "lion"},
        {"name": "muon", "scale": "unit-rms", "tensor": "distributed"},
        {"name": "muon", "scale": "shape"},
    ],
    ids=str,
)
def test_optimizers_come_back(target, optimizer, tmp_path):
    write_tree(tmp_path, exported(target, optimizer).files)
    request = ImportRequest(model=MODEL, on=CLUSTER, seq_len=4096, global_batch=64)
    found = import_file(tmp_path / FILES[target][1], request).plan.workload.optimizer
    assert (found if isinstance(found, str) else found.to_data()) == optimizer


@pytest.mark.parametrize("target", FILES)
def test_options_that_are_written_are_exported(target):
    text = "\n".join(
        exported(target, {"name": "adamw", "betas": (0.9, 0.98), "epsilon": 1e-6}).files.values()
    )
    assert "0.98" in text
    assert "1e-06" in text


@pytest.mark.parametrize(
    ("target", "optimizer", "field"),
    [
        ("megatron", {"name": "sgd", "momentum": 0.9, "nesterov": True}, "nesterov"),
        ("bridge", {"name": "muon", "others": "sgd"}, "others"),
        ("torchtitan", "muon", "workload.optimizer"),
        ("deepspeed", "muon", "workload.optimizer"),
        ("deepspeed", {"name": "sgd", "momentum": 0.9}, "momentum"),
    ],
)
def test_what_a_framework_does_not_have_is_not_exported(target, optimizer, field):
    with pytest.raises(UnsupportedError, match=field):
        exported(target, optimizer)
