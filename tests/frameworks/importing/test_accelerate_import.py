"""Configurations in the form of Accelerate's own templates and TRL's; numbers are the tests' own."""

import random

import pytest

from meshwright.errors import InputError
from meshwright.frameworks.accelerate.importing.importer import import_accelerate
from meshwright.frameworks.importing.imported_file import ImportedFile

FSDP = """
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
enable_cpu_affinity: false
fsdp_config:
  fsdp_activation_checkpointing: true
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_cpu_ram_efficient_loading: false
  fsdp_offload_params: false
  fsdp_reshard_after_forward: true
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_version: 2
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 8
parallelism_config:
  parallelism_config_cp_size: 1
  parallelism_config_dp_replicate_size: 2
  parallelism_config_dp_shard_size: 2
  parallelism_config_tp_size: 2
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
"""
ULYSSES = """
distributed_type: DEEPSPEED
deepspeed_config:
  zero_stage: 3
  offload_optimizer_device: none
  zero3_init_flag: true
num_machines: 1
num_processes: 4
mixed_precision: bf16
parallelism_config:
  parallelism_config_dp_shard_size: 2
  parallelism_config_sp_size: 2
  parallelism_config_sp_backend: deepspeed
  parallelism_config_sp_attn_implementation: flash_attention_2
"""
MEGATRON = """
distributed_type: MEGATRON_LM
num_processes: 16
mixed_precision: bf16
megatron_lm_config:
  megatron_lm_gradient_clipping: 1.0
  megatron_lm_num_micro_batches: 4
  megatron_lm_pp_degree: 2
  megatron_lm_recompute_activations: true
  megatron_lm_sequence_parallelism: true
  megatron_lm_tp_degree: 4
  megatron_lm_use_distributed_optimizer: 'true'
"""


def values(foreign: ImportedFile) -> dict[str, object]:
    return {path: fact.value for path, fact in foreign.facts.items()}


def complaints(foreign: ImportedFile, severity: str) -> set[str]:
    return {problem.field for problem in foreign.problems if problem.severity == severity}


def fsdp(version: int, *lines: str, mesh: str = "") -> ImportedFile:
    """A file for 16 processes on 2 machines; ``mesh`` is the inside of a parallelism_config."""
    keys = [f"fsdp_version: {version}", "fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP", *lines]
    sizes = [f"parallelism_config_{size}" for size in mesh.split(", ") if size]
    text = ["distributed_type: FSDP", "num_processes: 16", "num_machines: 2", "fsdp_config:"]
    text += [f"  {key}" for key in keys]
    text += ["parallelism_config:", *(f"  {size}" for size in sizes)] if sizes else []
    return import_accelerate("\n".join(text))


def test_a_mesh_under_fsdp() -> None:
    foreign = import_accelerate(FSDP)
    assert values(foreign) == {
        "devices": 8,
        "workload.precision": "bf16",
        "stack": "accelerate",
        "sharding": "zero3",
        "gather": "per-layer",
        "layout.dp_replicate": 2,
        "layout.dp_shard": 2,
        "layout.cp": 1,
        "layout.tp": 2,
        "layout.sequence_parallel": False,
        "recompute": "full",
    }
    assert (foreign.unread, foreign.problems) == ((), ())
    assert foreign.words("layout.tp") == "parallelism_config.parallelism_config_tp_size 2"


def test_ulysses_is_read_as_cp_and_its_difference_named() -> None:
    foreign = import_accelerate(ULYSSES)
    assert (foreign.value("layout.cp"), foreign.value("sharding")) == (2, "zero3")
    assert foreign.value("layout.dp_shard") is None, "ZeRO shards over all of it"
    assert [entry.key for entry in foreign.unread] == ["parallelism_config.parallelism_config_sp_size"]
    assert foreign.problems == ()


def test_megatron() -> None:
    found = values(import_accelerate(MEGATRON))
    wanted = {
        "stack": "megatron-core",
        "layout.tp": 4,
        "layout.pp": 2,
        "layout.sequence_parallel": True,
        "sharding": "zero1",
        "accumulation": 4,
        "recompute": "selective",
    }
    assert {path: found[path] for path in wanted} == wanted


@pytest.mark.parametrize(
    ("strategy", "sharding", "group"),
    [
        ("FULL_SHARD", "zero3", None),
        ("1", "zero3", None),
        ("SHARD_GRAD_OP", "zero2", None),
        ("2", "zero2", None),
        ("NO_SHARD", "none", None),
        ("HYBRID_SHARD", "zero3", 8),
        ("HYBRID_SHARD_ZERO2", "zero2", 8),
    ],
)
def test_strategies_of_the_first_version(strategy: str, sharding: str, group: int | None) -> None:
    foreign = fsdp(1, f"fsdp_sharding_strategy: {strategy}")
    assert (foreign.value("sharding"), foreign.value("shard_group")) == (sharding, group)
    assert foreign.problems == ()


@pytest.mark.parametrize(
    ("line", "sharding"),
    [
        ("fsdp_reshard_after_forward: true", "zero3"),
        ("reshard_after_forward: 'false'", "zero2"),
        ("fsdp_offload_params: false", "zero3"),
    ],
)
def test_the_second_version_reshards_or_not(line: str, sharding: str) -> None:
    assert fsdp(2, line).value("sharding") == sharding


def test_each_version_ignores_the_others_key() -> None:
    first = fsdp(1, "fsdp_reshard_after_forward: SHARD_GRAD_OP")
    assert first.value("sharding") == "zero3", "FSDP 1 runs its default"
    assert complaints(first, "warning") == {"fsdp_config.fsdp_reshard_after_forward"}
    second = fsdp(2, "fsdp_sharding_strategy: SHARD_GRAD_OP")
    assert complaints(second, "warning") == {"fsdp_config.fsdp_sharding_strategy"}


def test_a_mesh_needs_the_second_version() -> None:
    assert complaints(fsdp(1, mesh="dp_shard_size: 16"), "error") == {"fsdp_config.fsdp_version"}
    assert complaints(fsdp(2, mesh="dp_shard_size: 16"), "error") == set()


@pytest.mark.parametrize(
    ("mesh", "field"),
    [
        ("dp_shard_size: 4, cp_size: 2, sp_size: 2", "parallelism_config_sp_size"),
        ("dp_replicate_size: 4, tp_size: 4", "parallelism_config_dp_replicate_size"),
        ("dp_shard_size: 4, cp_size: 4, cp_backend: ring", "parallelism_config_cp_backend"),
    ],
)
def test_sizes_that_exclude_each_other(mesh: str, field: str) -> None:
    assert f"parallelism_config.{field}" in complaints(fsdp(2, mesh=mesh), "error")


def test_sizes_must_multiply_to_the_processes_and_leave_something_to_shard_over() -> None:
    assert complaints(fsdp(2, mesh="dp_shard_size: 4, tp_size: 2"), "error") == {"parallelism_config"}
    assert complaints(fsdp(2, mesh="tp_size: 16"), "error") == {"parallelism_config"}


def test_sizes_of_one_make_no_mesh() -> None:
    foreign = fsdp(2, mesh="dp_replicate_size: 1, dp_shard_size: 1")
    assert (foreign.value("layout.dp_replicate"), foreign.value("layout.dp_shard")) == (1, None)
    assert foreign.problems == ()


def test_ulysses_is_ignored_without_deepspeed() -> None:
    foreign = fsdp(2, mesh="dp_shard_size: 8, sp_size: 2")
    assert complaints(foreign, "warning") == {"parallelism_config.parallelism_config_sp_size"}
    assert (foreign.value("layout.cp"), foreign.unread) == (1, ())


def test_offloaded_checkpoints_need_checkpoints_and_the_second_version() -> None:
    key, on = "fsdp_activation_checkpointing_offload", "fsdp_activation_checkpointing: true"
    assert complaints(fsdp(2, f"{key}: true"), "error") == {f"fsdp_config.{key}"}
    assert complaints(fsdp(1, f"{key}: true", on), "error") == {f"fsdp_config.{key}"}
    assert [entry.key for entry in fsdp(2, f"{key}: true", on).unread] == [f"fsdp_config.{key}"]


def test_a_size_without_its_prefix_is_ignored_and_named() -> None:
    text = FSDP.replace("  parallelism_config_tp_size: 2", "  tp_size: 2")
    foreign = import_accelerate(text)
    assert complaints(foreign, "warning") == {"parallelism_config.tp_size"}
    assert "parallelism_config_tp_size" in {problem.suggestion for problem in foreign.problems}
    assert foreign.value("layout.tp") == 1


def test_an_unknown_key_is_refused_at_the_top_and_ignored_below() -> None:
    text = FSDP.replace("mixed_precision", "mixed_precison")
    text = text.replace("fsdp_offload_params", "fsdp_ofload_params")
    foreign = import_accelerate(text)
    assert complaints(foreign, "error") == {"mixed_precison"}
    assert complaints(foreign, "warning") == {"fsdp_config.fsdp_ofload_params"}
    assert all("did you mean" in problem.suggestion for problem in foreign.problems)


def test_a_model_that_is_one_unit_is_gathered_at_once() -> None:
    text = FSDP.replace("  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n", "")
    foreign = import_accelerate(text)
    assert foreign.value("gather") == "per-micro-batch"
    assert complaints(foreign, "warning") == {"fsdp_auto_wrap_policy"}


def test_a_deepspeed_file_is_not_opened_and_stands_alone() -> None:
    text = (
        "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
    )
    foreign = import_accelerate(text)
    assert "sharding" not in foreign.facts
    assert [entry.key for entry in foreign.unread] == ["deepspeed_config.deepspeed_config_file"]
    assert foreign.problems == ()
    beside = import_accelerate(text + "  zero_stage: 3\n")
    assert complaints(beside, "error") == {"deepspeed_config.zero_stage"}


def test_deepspeed_without_a_stage_is_the_second() -> None:
    text = "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config: {gradient_accumulation_steps: 4}"
    foreign = import_accelerate(text)
    assert (foreign.value("sharding"), foreign.value("accumulation")) == ("zero2", 4)


def test_offload_is_lost_or_ignored() -> None:
    text = "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  zero_stage: 2\n"
    foreign = import_accelerate(text + "  offload_optimizer_device: cpu\n  offload_param_device: cpu\n")
    assert [entry.key for entry in foreign.unread] == ["deepspeed_config.offload_optimizer_device"]
    assert complaints(foreign, "warning") == {"deepspeed_config.offload_param_device"}


@pytest.mark.parametrize(
    ("line", "precision"),
    [
        ("mixed_precision: bf16", "bf16"),
        ("mixed_precision: 'no'", "fp32"),
        ("mixed_precision: no", "fp32"),
        ("mixed_precision: FP16", "fp16"),
        ("fp16: true", "fp16"),
        ("debug: false", None),
    ],
)
def test_precision(line: str, precision: str | None) -> None:
    text = f"distributed_type: MULTI_GPU\nnum_processes: 2\n{line}"
    assert import_accelerate(text).value("workload.precision") == precision


def test_torchao_refuses_loading_by_one_rank_which_is_the_default() -> None:
    text = "distributed_type: FSDP\nnum_processes: 2\nmixed_precision: fp8\nfp8_config: {backend: AO}\n"
    policy = "fsdp_config: {fsdp_version: 2, fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP"
    assert complaints(import_accelerate(text + policy + "}"), "error") == {"fsdp_cpu_ram_efficient_loading"}
    off = ", fsdp_cpu_ram_efficient_loading: false}"
    assert import_accelerate(text + policy + off).problems == ()


def test_a_section_of_another_kind_of_job_is_ignored() -> None:
    text = "distributed_type: MULTI_GPU\nnum_processes: 8\nfsdp_config: {fsdp_version: 2}"
    foreign = import_accelerate(text)
    assert complaints(foreign, "warning") == {"fsdp_config"}
    assert foreign.value("sharding") == "none"


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("num_processes: 8", "distributed_type"),
        ("distributed_type: FSPD\nnum_processes: 8", "distributed_type"),
        ("distributed_type: MULTI_GPU\nnum_processes: 9\nnum_machines: 2", "num_processes"),
        ("distributed_type: MULTI_GPU\nmixed_precision: int8", "mixed_precision"),
        ("distributed_type: MULTI_GPU\nnum_processes: many", "num_processes"),
        ("distributed_type: MULTI_GPU\nfsdp_config: 3", "fsdp_config"),
        ("compute_environment: AMAZON_SAGEMAKER\ndistributed_type: NO", "compute_environment"),
    ],
)
def test_what_accelerate_refuses(text: str, field: str) -> None:
    assert field in complaints(import_accelerate(text), "error")


def test_the_number_of_processes_may_be_said_at_the_start() -> None:
    foreign = import_accelerate("distributed_type: MULTI_GPU\nnum_processes: -1")
    assert ("devices" in foreign.facts, foreign.problems) == (False, ())


@pytest.mark.parametrize(
    "text",
    ["", "[1, 2]", "a: b", "distributed_type: &x FSDP\nmixed_precision: *x", "a: [" * 3000, "\x00", " \t{"],
)
def test_what_can_not_be_read_is_an_input_error(text: str) -> None:
    with pytest.raises(InputError):
        import_accelerate(text)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seed", [6, 7, 8])
def test_wrong_types_anywhere_are_problems_and_never_another_exception(seed: int) -> None:
    kinds = ["FSDP", "MULTI_GPU", "DEEPSPEED", "MEGATRON_LM", "NO", "3", "{}"]
    wrong = ["", "null", "true", "-1", "0", "1.5", "1e300", "x", "[]", "{}", "[[]]", "{a: b}", "'auto'"]
    keys = [
        *("fsdp_version", "fsdp_sharding_strategy", "fsdp_reshard_after_forward", "fsdp_auto_wrap_policy"),
        *(
            "parallelism_config_tp_size",
            "parallelism_config_cp_backend",
            "zero_stage",
            "megatron_lm_tp_degree",
        ),
        *(
            "deepspeed_config_file",
            "offload_param_device",
            "megatron_lm_recompute_granularity",
            "fp8_backend",
        ),
    ]
    sections = ["fsdp_config", "parallelism_config", "deepspeed_config", "megatron_lm_config", "fp8_config"]
    draw = random.Random(seed)
    for _ in range(150):
        lines = [f"distributed_type: {draw.choice(kinds)}", f"num_processes: {draw.choice(wrong)}"]
        lines.append(f"mixed_precision: {draw.choice(wrong)}")
        for section in draw.sample(sections, 3):
            lines.append(f"{section}:")
            lines += [f"  {key}: {draw.choice(wrong)}" for key in draw.sample(keys, 4)]
        assert import_accelerate("\n".join(lines)).source == "accelerate"
