"""Adapters come back from Megatron-Bridge's and Accelerate's files; other targets refuse them by name."""

import ast

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

CLUSTER = "h100-sxm-80gb x 8"
FILES = {
    "bridge": ("megatron-bridge", "bridge/overrides.yaml", "zero1"),
    "accelerate": ("accelerate", "accelerate/config.yaml", "zero3"),
}
STACKS = {
    "megatron": "megatron-core",
    "torchtitan": "torchtitan",
    "deepspeed": "deepspeed",
    **{target: stack for target, (stack, _, _) in FILES.items()},
}


def exported(target, adapter, model="llama-3.1-8b", sharding="none"):
    workload = {"task": "lora", "seq_len": 4096, "global_batch": 64, "adapter": adapter}
    layout = {"dp_replicate": 8} if sharding == "none" else {"dp_shard": 8}
    plan = ShortPlan.model_validate(
        {
            "plan": 1,
            "model": model,
            "cluster": CLUSTER,
            "workload": {key: value for key, value in workload.items() if value is not None},
            "stack": STACKS[target],
            "layout": layout,
            "sharding": sharding,
        }
    )
    graph = load_model(model)
    return TARGETS[target](
        expand(plan, graph.architecture), graph, load_cluster(CLUSTER), load_stack(STACKS[target])
    )


@pytest.mark.parametrize(
    ("target", "adapter"),
    [
        ("bridge", {}),
        ("bridge", {"rank": 8, "alpha": 16.0, "targets": ("q", "v")}),
        ("bridge", {"targets": ("o", "gate", "down")}),
        ("accelerate", {}),
        ("accelerate", {"rank": 64, "alpha": 16.0, "base": "nf4"}),
        ("accelerate", {"rank": 4, "targets": ("q", "up")}),
    ],
    ids=str,
)
def test_adapters_come_back(target, adapter, tmp_path):
    _, name, sharding = FILES[target]
    files = exported(target, adapter, sharding=sharding).files
    write_tree(tmp_path, files)
    request = ImportRequest(model="llama-3.1-8b", on=CLUSTER, seq_len=4096, global_batch=64)
    found = import_file(tmp_path / name, request)
    assert found.plan is not None, found.problems
    assert found.plan.workload.task == "lora"
    expected = {"form": "lora", "rank": 32} | adapter
    expected["targets"] = expected.get("targets")
    assert found.plan.workload.adapter.model_dump(exclude_none=True) == {
        key: value for key, value in expected.items() if value is not None
    }
    for path, text in files.items():
        if path.endswith(".py"):
            ast.parse(text)


def test_latent_attention_has_megatrons_names_and_comes_back_under_ours(tmp_path):
    adapter = {"targets": ("q", "k", "o")}
    export = exported("bridge", adapter, model="deepseek-v3", sharding="zero1")
    write_tree(tmp_path, export.files)
    text = export.files["bridge/overrides.yaml"]
    assert "linear_q_down_proj" in text
    assert "linear_kv_up_proj" in text
    request = ImportRequest(model="deepseek-v3", on=CLUSTER, seq_len=4096, global_batch=64)
    assert import_file(tmp_path / "bridge/overrides.yaml", request).plan.workload.adapter.targets == (
        "q",
        "k",
        "v",
        "o",
    )


@pytest.mark.parametrize(
    ("target", "adapter", "model", "field"),
    [
        ("megatron", {}, "llama-3.1-8b", "workload.task"),
        ("torchtitan", {}, "llama-3.1-8b", "workload.task"),
        ("deepspeed", {}, "llama-3.1-8b", "workload.task"),
        ("bridge", None, "llama-3.1-8b", "workload.task"),
        ("bridge", {"base": "nf4"}, "llama-3.1-8b", "workload.adapter.base"),
        ("bridge", {}, "mixtral-8x7b", "workload.adapter.targets"),
        ("bridge", {}, "gpt-3-175b", "workload.adapter.targets"),
        ("accelerate", {}, "gpt-3-175b", "model"),
        ("accelerate", {"form": "hd-pissa", "rank": 4}, "llama-3.1-8b", "workload.adapter.form"),
    ],
    ids=str,
)
def test_what_a_target_cannot_train_is_refused_by_name(target, adapter, model, field):
    with pytest.raises(UnsupportedError) as error:
        exported(target, adapter, model)
    assert field in {problem.field for problem in error.value.problems}


def test_eight_bit_matrices_are_not_sharded():
    assert "int8" in exported("accelerate", {"base": "int8"}).files["accelerate/launch.sh"]
    with pytest.raises(UnsupportedError, match="8-bit"):
        exported("accelerate", {"base": "int8"}, sharding="zero3")


def test_a_fused_adapter_of_megatron_bridge_is_read_with_a_remark(tmp_path):
    path = tmp_path / "run_config.yaml"
    path.write_text(
        "model:\n  tensor_model_parallel_size: 1\n  seq_length: 2048\ntrain:\n  global_batch_size: 8\n"
        "peft:\n  _target_: megatron.bridge.peft.lora.LoRA\n  dim: 8\n  alpha: 32\n  dropout: 0.1\n"
        "  target_modules: [linear_qkv, linear_proj]\n"
    )
    found = import_file(path, ImportRequest(model="llama-3.1-8b", on=CLUSTER))
    adapter = found.plan.workload.adapter
    assert (adapter.rank, adapter.alpha, adapter.targets) == (8, 32, ("q", "k", "v", "o"))
    assert {unread.key for unread in found.foreign.unread} >= {"peft.target_modules", "peft.dropout"}
