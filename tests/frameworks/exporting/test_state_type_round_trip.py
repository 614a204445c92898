"""Element types of states come back from the files of the frameworks that have them."""

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
from meshwright.stack.state_types import types_of
from meshwright.verbs.import_ import ImportRequest

MODEL, CLUSTER = "llama-3.1-8b", "h100-sxm-80gb x 8"
FILES = {
    "megatron": ("megatron-core", "megatron/args.sh", "zero1"),
    "bridge": ("megatron-bridge", "bridge/overrides.yaml", "zero1"),
    "torchtitan": ("torchtitan", "torchtitan/args.sh", "zero3"),
    "deepspeed": ("deepspeed", "deepspeed/ds_config.json", "zero2"),
}
NARROW = {"master": "fp16", "first_moment": "bf16", "second_moment": "fp8"}
CASES = [
    *(
        (target, precision, dtypes)
        for target in ("megatron", "bridge")
        for precision, dtypes in (
            ("bf16", {"gradient": "bf16"}),
            ("bf16", {"gradient": "fp32"}),
            ("bf16", {"first_moment": "fp8"}),
            ("bf16", {"gradient": "bf16", **NARROW}),
            ("fp16", {"gradient": "fp32"}),
            ("fp16", {"gradient": "fp16"}),
            ("fp8", {"gather": "fp8"}),
        )
    ),
    ("torchtitan", "bf16", {"gradient": "bf16"}),
    ("torchtitan", "bf16", {"master": "none"}),
    ("torchtitan", "bf16", {}),
    ("deepspeed", "bf16", {"gradient": "fp32"}),
    ("deepspeed", "bf16", {"gradient": "fp32", "reduce": "bf16"}),
    ("deepspeed", "fp16", {"reduce": "fp32", "gradient": "fp16"}),
    ("deepspeed", "bf16", {"master": "none"}),
    ("deepspeed", "bf16", {"first_moment": "bf16"}),
]


def exported(target, precision, dtypes, sharding=None):
    name, _, usual = FILES[target]
    plan = ShortPlan.model_validate(
        {
            "plan": 1,
            "model": MODEL,
            "cluster": CLUSTER,
            "workload": {"seq_len": 4096, "global_batch": 64, "precision": precision},
            "stack": name,
            "layout": {"dp_shard": 8},
            "sharding": sharding or usual,
            **({"dtypes": dtypes} if dtypes else {}),
        }
    )
    model, stack = load_model(MODEL), load_stack(name)
    return TARGETS[target](expand(plan, model.architecture), model, load_cluster(CLUSTER), stack)


@pytest.mark.parametrize(("target", "precision", "dtypes"), CASES)
def test_types_come_back(target, precision, dtypes, tmp_path):
    name, file, sharding = FILES[target]
    sharding = (
        "zero3" if target == "deepspeed" and not {"master", "first_moment"}.isdisjoint(dtypes) else sharding
    )
    write_tree(tmp_path, exported(target, precision, dtypes, sharding).files)
    request = ImportRequest(model=MODEL, on=CLUSTER, seq_len=4096, global_batch=64)
    found = import_file(tmp_path / file, request).plan
    stack, written = load_stack(name), found.dtypes.written if found.dtypes else {}
    assert types_of(stack, precision, written) == types_of(stack, precision, dtypes)
    assert found.sharding == sharding


def test_deepspeed_accumulates_in_fp32_only_with_zero():
    with pytest.raises(UnsupportedError, match="without ZeRO"):
        exported("deepspeed", "bf16", {"gradient": "fp32"}, sharding="none")


@pytest.mark.parametrize(
    ("target", "dtypes"),
    [
        ("torchtitan", {"second_moment": "fp8"}),
        ("torchtitan", {"gradient": "bf16", "first_moment": "fp32"}),
        ("deepspeed", {"first_moment": "bf16"}),
        ("deepspeed", {"first_moment": "fp8"}),
        ("megatron", {"gradient": "bf16", "reduce": "fp32"}),
    ],
)
def test_types_that_the_framework_does_not_have_are_not_exported(target, dtypes):
    with pytest.raises(UnsupportedError, match="dtypes"):
        exported(target, "bf16", dtypes)
