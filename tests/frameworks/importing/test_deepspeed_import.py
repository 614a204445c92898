"""Configurations in the form of those that DeepSpeed's and others' examples hold; numbers are the tests' own."""

import json
import random
import string

import pytest

from meshwright.errors import InputError, Problem
from meshwright.frameworks.deepspeed.importing.importer import import_deepspeed
from meshwright.frameworks.importing.imported_file import ImportedFile
from meshwright.verbs.import_ import ImportRequest, import_text

BASE = {"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": True}}
FILLED_IN_LATER = """
{
  "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto",
  "gradient_clipping": "auto",
  "fp16": {"enabled": "auto", "loss_scale": 0, "initial_scale_power": 16},
  "bf16": {"enabled": "auto"},
  "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto"}},
  "zero_optimization": {
    "stage": 3,
    "overlap_comm": true,
    "reduce_bucket_size": "auto",
    "stage3_max_live_parameters": 1e9,
    "stage3_gather_16bit_weights_on_model_save": true
  }
}
"""
"""What transformers' documentation gives for stage 3."""


def read(**changes: object) -> ImportedFile:
    return import_deepspeed(json.dumps({**BASE, **changes}))


def values(foreign: ImportedFile) -> dict[str, object]:
    return {path: fact.value for path, fact in foreign.facts.items()}


def complaints(foreign: ImportedFile, severity: str) -> set[str]:
    return {problem.field for problem in foreign.problems if problem.severity == severity}


def test_what_is_filled_in_when_the_script_starts_is_no_fact() -> None:
    foreign = import_deepspeed(FILLED_IN_LATER)
    assert values(foreign) == {
        "stack": "deepspeed",
        "sharding": "zero3",
        "gather": "per-layer",
        "layout.dp_replicate": 1,
        "workload.optimizer": "adamw",
        "stack.overlap_gradient_reduction": True,
    }
    assert (foreign.unread, foreign.problems) == ((), ())


def test_the_three_numbers_of_the_batch_are_read() -> None:
    foreign = read(train_batch_size=64, gradient_accumulation_steps=4)
    paths = ("workload.global_batch", "pipeline.micro_batch", "accumulation")
    assert [foreign.value(path) for path in paths] == [64, 2, 4]
    assert foreign.words("workload.global_batch") == "train_batch_size 64"


def test_train_batch_size_counts_every_rank_of_autotp() -> None:
    foreign = read(train_batch_size=64, gradient_accumulation_steps=4, tensor_parallel={"autotp_size": 2})
    paths = ("layout.tp", "workload.global_batch", "batch_ranks")
    assert [foreign.value(path) for path in paths] == [2, 32, 2]
    assert foreign.value("layout.sequence_parallel") is False


def test_a_batch_that_the_ranks_of_autotp_do_not_divide_is_refused() -> None:
    (problem,) = read(train_batch_size=63, tensor_parallel={"autotp_size": 2}).problems
    assert (problem.field, problem.suggestion) == ("train_batch_size", "train_batch_size: 64")


def imported(devices: int, **changes: object) -> list[Problem]:
    """The errors of a configuration on so many devices."""
    wanted = ImportRequest(model="llama-3.1-8b", on=f"h100-sxm-80gb x {devices}", seq_len=4096)
    found = import_text(json.dumps({**BASE, **changes}), wanted)
    return [problem for problem in found.problems if problem.severity == "error"]


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("train", [30, 32, 63, 128, 1])
def test_a_batch_that_contradicts_its_parts_is_one_problem_with_the_value_that_mends_it(train, tp) -> None:
    """DeepSpeed's own rule: train_batch_size = micro-batch · accumulation · ranks, those of AutoTP among them."""
    parts = {"gradient_accumulation_steps": 4, "tensor_parallel": {"autotp_size": tp}}
    errors = imported(8, train_batch_size=train, **parts)
    assert len(errors) == 1
    assert errors[0].field == "train_batch_size"
    if train % tp == 0:
        equation = "2·4·8 = 64" if tp == 1 else "2·4·4·2 = 64"
        assert f"{equation}, not {train}" in errors[0].rule
        assert (
            "train_micro_batch_size_per_gpu·gradient_accumulation_steps·data-parallel ranks" in errors[0].rule
        )
        assert errors[0].suggestion.startswith("train_batch_size 64")
    assert not imported(8, train_batch_size=64, **parts)


def test_the_accumulation_that_would_mend_the_batch_is_named_too() -> None:
    (error,) = imported(8, train_batch_size=32, gradient_accumulation_steps=4)
    assert error.suggestion == "train_batch_size 64, or gradient_accumulation_steps 2"
    assert not imported(8, train_batch_size=32, gradient_accumulation_steps=2)


def test_stated_data_parallelism_that_is_not_the_cluster_s_is_its_own_problem() -> None:
    (error,) = imported(8, train_batch_size=64, gradient_accumulation_steps=4, data_parallel_size=4)
    assert (error.field, error.suggestion) == ("data_parallel_size", "8")


def test_accumulation_that_is_left_out_is_one_beside_a_micro_batch_alone() -> None:
    assert read().value("accumulation") == 1
    assert read(train_batch_size=64).value("accumulation") is None
    assert read(gradient_accumulation_steps="auto").value("accumulation") is None


def test_a_micro_batch_that_follows_from_the_ranks_is_named() -> None:
    foreign = import_deepspeed('{"train_batch_size": 64, "gradient_accumulation_steps": 4}')
    assert complaints(foreign, "warning") == {"train_micro_batch_size_per_gpu"}
    assert foreign.value("accumulation") is None, "it means nothing without the micro-batch"


def test_a_file_without_any_batch_is_refused() -> None:
    foreign = import_deepspeed('{"zero_optimization": {"stage": 1}}')
    assert complaints(foreign, "error") == {"train_micro_batch_size_per_gpu"}


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("train_micro_bach_size", "train_micro_batch_size_per_gpu"),
        ("gradient_acumulation_steps", "gradient_accumulation_steps"),
        ("zero_optimisation", "zero_optimization"),
    ],
)
def test_a_misspelled_key_is_ignored_by_deepspeed_and_named_here(key: str, near: str) -> None:
    problems = read(**{key: 4}).problems
    assert [(p.field, p.severity) for p in problems] == [(key, "warning")]
    assert near in problems[0].suggestion


def test_a_misspelled_key_of_a_typed_section_is_refused() -> None:
    foreign = read(zero_optimization={"stage": 2, "overlap_com": True})
    assert complaints(foreign, "error") == {"zero_optimization.overlap_com"}
    assert "overlap_comm" in foreign.problems[0].suggestion


def test_a_misspelled_key_of_an_untyped_section_is_ignored() -> None:
    foreign = read(expert_parallel={"enabled": True, "autoep_sise": 4})
    assert complaints(foreign, "warning") == {"expert_parallel.autoep_sise"}
    assert foreign.value("layout.ep") == 1, "DeepSpeed takes its default"


def test_a_key_that_a_release_dropped_is_refused() -> None:
    foreign = read(elasticity={}, zero_optimization={"stage": 3, "mics_shard_size": 8})
    assert complaints(foreign, "error") == {"elasticity", "zero_optimization.mics_shard_size"}
    assert foreign.value("shard_group") == 8


def test_two_precisions_exclude_each_other() -> None:
    assert complaints(read(fp16={"enabled": True}), "error") == {"fp16.enabled"}


@pytest.mark.parametrize(
    ("sections", "precision"),
    [
        ({"bf16": {"enabled": True}}, "bf16"),
        ({"bfloat16": {"enabled": True}, "bf16": {"enabled": False}}, "bf16"),
        ({"bf16": {"enabled": False}, "fp16": {"enabled": True}}, "fp16"),
        ({"bf16": {"enabled": False}}, "fp32"),
        ({"bf16": {"enabled": "auto"}}, None),
        ({"bf16": {"enabled": False}, "torch_autocast": {"enabled": True, "dtype": "bfloat16"}}, "bf16"),
    ],
)
def test_precision(sections: dict[str, object], precision: str | None) -> None:
    assert read(**sections).value("workload.precision") == precision


@pytest.mark.parametrize(
    ("stage", "offload", "ignored"),
    [(0, "offload_optimizer", True), (1, "offload_optimizer", False), (2, "offload_param", True)],
)
def test_offload_is_read_or_ignored_and_lost_on_nvme(stage: int, offload: str, ignored: bool) -> None:
    key = f"zero_optimization.{offload}.device"
    path = {"offload_optimizer": "offload.optimizer", "offload_param": "offload.parameters"}[offload]
    foreign = read(zero_optimization={"stage": stage, offload: {"device": "cpu"}})
    assert (key in complaints(foreign, "warning")) is ignored
    assert foreign.value(path) == (None if ignored else 1.0)
    assert foreign.unread == ()
    foreign = read(zero_optimization={"stage": stage, offload: {"device": "nvme"}})
    assert foreign.value(path) is None
    assert ([entry.key for entry in foreign.unread] == [key]) is not ignored


def test_a_share_is_read_at_stage_three_and_older_keys_mean_all() -> None:
    section = {"device": "cpu", "ratio": 0.3}
    foreign = read(zero_optimization={"stage": 3, "offload_optimizer": section})
    assert foreign.value("offload.optimizer") == 0.3
    foreign = read(zero_optimization={"stage": 2, "cpu_offload": True})
    assert foreign.value("offload.optimizer") == 1.0


def test_offload_to_nowhere_is_none() -> None:
    foreign = read(zero_optimization={"stage": 3, "offload_param": {"device": "none"}})
    assert (foreign.unread, foreign.problems) == ((), ())


@pytest.mark.parametrize(
    "key", ["stage3_max_live_parameters", "zero_hpz_partition_size", "zero_quantized_weights"]
)
def test_keys_of_stage_three_do_nothing_below_it(key: str) -> None:
    value = True if "quantized" in key else 8
    below, there = (read(zero_optimization={"stage": stage, key: value}) for stage in (2, 3))
    assert complaints(below, "warning") == {f"zero_optimization.{key}"}
    assert there.problems == ()
    assert bool(there.unread) is (not key.startswith("stage3_"))


def test_sequence_and_tensor_parallelism_exclude_each_other() -> None:
    foreign = read(sequence_parallel_size=2, tensor_parallel={"autotp_size": 2})
    assert complaints(foreign, "error") == {"sequence_parallel_size"}


def test_ulysses_is_read_as_cp_and_its_difference_named() -> None:
    foreign = read(sequence_parallel_size=4)
    assert foreign.value("layout.cp") == 4
    assert [entry.key for entry in foreign.unread] == ["sequence_parallel_size"]


def test_a_pipeline_takes_no_higher_stage_and_its_section_no_stages() -> None:
    foreign = read(pipeline={"stages": 4}, zero_optimization={"stage": 2})
    assert complaints(foreign, "error") == {"zero_optimization.stage"}
    assert complaints(foreign, "warning") == {"pipeline.stages"}
    assert foreign.value("layout.pp") == 4
    assert read(pipeline={"activation_checkpoint_interval": 1}).value("recompute") == "full"


def test_experts() -> None:
    experts = {"enabled": True, "autoep_size": 8, "preset_model": "qwen3_moe", "load_balance_coeff": None}
    foreign = read(expert_parallel=experts, zero_optimization={"stage": 1})
    assert (foreign.value("layout.ep"), foreign.value("layout.etp")) == (8, 1)
    assert foreign.problems == ()


@pytest.mark.parametrize(
    ("experts", "rest", "field"),
    [
        ({"expert_tensor_parallel_size": 2}, {}, "expert_parallel.expert_tensor_parallel_size"),
        ({"autoep_size": 1}, {"tensor_parallel": {"autotp_size": 2}}, "expert_parallel.autoep_size"),
        (
            {"autoep_size": 2},
            {"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}},
            "zero_optimization.zero_hpz_partition_size",
        ),
    ],
)
def test_rules_of_experts(experts: dict[str, object], rest: dict[str, object], field: str) -> None:
    foreign = read(expert_parallel={"enabled": True, "autoep_size": 2, **experts}, **rest)
    assert field in complaints(foreign, "error")


def test_the_old_way_to_ask_for_the_first_stage() -> None:
    assert read(zero_optimization=True).value("sharding") == "zero1"
    assert read(zero_optimization=False).value("sharding") == "none"


@pytest.mark.parametrize("stage", [4, -1, "three", 2.5, True, [], {}])
def test_a_stage_that_is_none_is_an_error_and_no_fact(stage: object) -> None:
    foreign = read(zero_optimization={"stage": stage})
    assert "zero_optimization.stage" in complaints(foreign, "error")
    assert "sharding" not in foreign.facts


def test_gradients_overlap_where_the_stage_and_the_key_say_so() -> None:
    overlap = "stack.overlap_gradient_reduction"
    assert read(zero_optimization={"stage": 2}).value(overlap) is False
    assert read(zero_optimization={"stage": 3}).value(overlap) is True
    assert read(zero_optimization={"stage": 2, "overlap_comm": True}).value(overlap) is True
    assert (
        read(zero_optimization={"stage": 0, "overlap_comm": True}).value(overlap) is None
    )  # nothing is sharded


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{\n  // a comment\n  "train_batch_size": 1\n}', "line 2"),
        ('{"train_batch_size": 1}\nexit 0', "line 2"),
        ('{\n "train_batch_size": 1,\n}', "line 3"),
        ("", "line 1"),
    ],
)
def test_what_is_no_json_is_refused_with_its_place(text: str, place: str) -> None:
    with pytest.raises(InputError, match=place):
        import_deepspeed(text)


@pytest.mark.parametrize(
    "text",
    [
        "[1]",
        "null",
        '{"a": 1}',
        "{}",
        "[" * 100_000,
        '{"train_batch_size":' + '{"a":' * 40 + "1" + "}" * 41,
        '{"train_batch_size": NaN}',
        '{"train_batch_size": 1e999}',
        '{"train_batch_size": ' + "9" * 5000 + "}",
        '{"train_batch_size": 1, "train_batch_size": 2}',
        " " * 200_000,
        "\x00\x01\x02",
    ],
)
def test_what_can_not_be_read_is_an_input_error(text: str) -> None:
    with pytest.raises(InputError):
        import_deepspeed(text)


def test_wrong_types_anywhere_are_problems_and_never_another_exception() -> None:
    names = [
        *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"),
        *("zero_optimization", "bf16", "fp16", "tensor_parallel", "expert_parallel", "pipeline", "optimizer"),
        *("sequence_parallel_size", "data_types", "torch_autocast", "compile"),
    ]
    inner = ["stage", "enabled", "autotp_size", "type", "stages", "offload_param", "dtype", "tp", "device"]
    wrong = [None, True, -1, 0, 1.5, 10**30, "x", "auto", [], {}, [[]], {"device": 3}, {"tp_size": "y"}]
    draw = random.Random(5)
    for _ in range(400):
        data: dict[str, object] = {name: draw.choice(wrong) for name in draw.sample(names, 5)}
        data |= {draw.choice(names): {key: draw.choice(wrong) for key in draw.sample(inner, 4)}}
        assert import_deepspeed(json.dumps(data)).source == "deepspeed"


def test_many_unknown_keys_are_counted() -> None:
    data = {
        **BASE,
        **{"".join(pair): 1 for pair in ((a, b, "q") for a in string.ascii_letters for b in "xyz")},
    }
    problems = import_deepspeed(json.dumps(data)).problems
    assert len(problems) == 41
    assert problems[-1].value == 156 - 40
