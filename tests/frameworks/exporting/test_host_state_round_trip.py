"""States on the host come back from the files of the frameworks that keep them there."""

import pytest

from meshwright.api import import_file
from meshwright.cli.terminal.output import write_tree
from meshwright.cluster.load import load_cluster
from meshwright.errors import UnsupportedError
from meshwright.frameworks.export_targets import TARGETS
from meshwright.model.load import load_model
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.host_offload import HostShares, Offload
from meshwright.plans.forms.short import ShortPlan
from meshwright.stack.load import load_stack
from meshwright.verbs.import_ import ImportRequest

MODEL = "llama-3.1-8b"
FILES = {
    "megatron": ("megatron-core", "megatron/args.sh"),
    "bridge": ("megatron-bridge", "bridge/overrides.yaml"),
    "torchtitan": ("torchtitan", "torchtitan/args.sh"),
    "deepspeed": ("deepspeed", "deepspeed/ds_config.json"),
    "accelerate": ("accelerate", "accelerate/config.yaml"),
}
CASES = [
    *((target, "zero1", {"optimizer": share}) for target in ("megatron", "bridge") for share in ("all", 0.3)),
    ("torchtitan", "zero3", {"optimizer": "all", "parameters": "all"}),
    ("accelerate", "zero3", {"optimizer": "all", "parameters": "all"}),
    *(("deepspeed", sharding, {"optimizer": "all"}) for sharding in ("zero1", "zero2", "zero3")),
    ("deepspeed", "zero3", {"optimizer": 0.4}),
    ("deepspeed", "zero3", {"parameters": "all"}),
    ("deepspeed", "zero3", {"optimizer": 0.4, "parameters": "all"}),
]


def exported(target, sharding, offload, devices=8):
    name, _ = FILES[target]
    plan = ShortPlan.model_validate(
        {
            "plan": 1,
            "model": MODEL,
            "cluster": f"h100-sxm-80gb x {devices}",
            "workload": {"seq_len": 4096, "global_batch": 64},
            "stack": name,
            "layout": {"dp_shard": devices},
            "sharding": sharding,
            **({"offload": offload} if offload else {}),
        }
    )
    model, cluster = load_model(MODEL), load_cluster(plan.cluster)
    return TARGETS[target](expand(plan, model.architecture), model, cluster, load_stack(name))


def came_back(target, result, where, devices=8):
    write_tree(where, result.files)
    on = f"h100-sxm-80gb x {devices}"
    request = ImportRequest(model=MODEL, on=on, seq_len=4096, global_batch=64)
    imported = import_file(where / FILES[target][1], request)
    return imported.plan


@pytest.mark.parametrize(("target", "sharding", "offload"), CASES)
def test_states_on_the_host_come_back(target, sharding, offload, tmp_path):
    found = came_back(target, exported(target, sharding, offload), tmp_path)
    assert found.offload.shares == Offload.model_validate(offload).shares
    assert found.sharding == sharding


@pytest.mark.parametrize("target", FILES)
def test_states_on_the_device_need_no_word(target, tmp_path):
    sharding = "zero1" if target in ("megatron", "bridge") else "zero3"
    assert came_back(target, exported(target, sharding, None), tmp_path).offload is None


@pytest.mark.parametrize(
    ("target", "offload"),
    [
        ("megatron", {"optimizer": 0.5}),
        ("deepspeed", {"optimizer": "all"}),
        ("deepspeed", {"optimizer": 0.5}),
    ],
)
def test_one_rank_is_written_with_the_sharding_that_reads_the_key(target, offload, tmp_path):
    found = came_back(target, exported(target, "none", offload, devices=1), tmp_path, devices=1)
    assert found.offload.shares == HostShares(Offload.model_validate(offload).shares.optimizer, 0.0)


@pytest.mark.parametrize(
    ("target", "sharding", "offload"),
    [
        ("megatron", "zero1", {"parameters": "all"}),
        ("torchtitan", "zero3", {"optimizer": "all"}),
        ("deepspeed", "zero2", {"optimizer": 0.5}),
        ("accelerate", "zero3", {"optimizer": 0.5, "parameters": "all"}),
    ],
)
def test_shares_that_the_framework_does_not_have_are_not_exported(target, sharding, offload):
    with pytest.raises(UnsupportedError, match="offload"):
        exported(target, sharding, offload)
