"""torchtitan's job files of releases 0.1.0 to 0.2.2 as facts."""

import random
from pathlib import Path

import pytest

from meshwright.errors import InputError
from meshwright.frameworks.import_formats import detected, read_framework_file
from meshwright.frameworks.nested_keys import is_known
from meshwright.frameworks.option_names import option_names
from meshwright.frameworks.option_table import OptionRow
from meshwright.frameworks.torchtitan import options as names
from meshwright.frameworks.torchtitan.importing.importer import WHY, import_torchtitan
from meshwright.frameworks.torchtitan.importing.job_file import DEFAULTS, USUAL
from meshwright.frameworks.torchtitan.importing.release_keys import RELEASES, known_keys, renamed_keys
from meshwright.frameworks.torchtitan.importing.unread_options import LOSSES
from meshwright.verbs.import_ import ImportRequest, import_text

SAMPLES = sorted((Path(__file__).parent / "torchtitan_jobs").glob("*.toml"))
LLAMA = 'model.name = "llama3"\nmodel.flavor = "8B"\n'
ROWS = [
    row
    for row in names.TABLE.rows
    if isinstance(row, OptionRow) and row.option.removeprefix("--") in known_keys()
]


def read(*lines):
    return import_torchtitan("\n".join([LLAMA, *lines]))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.option)
def test_every_number_of_a_job_file_gives_the_fact_of_todays_option(row):
    rng = random.Random(row.option)
    for value in (rng.randint(2, 2**15) for _ in range(20)):
        found = read(f"{row.option.removeprefix('--')} = {value}")
        fact = found.facts.get(row.path) or found.facts["pipeline.micro_batch"]
        assert fact.value == value
        assert fact.words == f"{row.option.removeprefix('--')} {value}"


def test_the_table_covers_all_degrees_the_batch_and_the_length():
    assert {row.path for row in ROWS} == {
        *(f"layout.{axis}" for axis in ("dp_replicate", "dp_shard", "cp", "tp", "pp", "ep")),
        *("workload.seq_len", "local_batch", "workload.global_batch"),
    }


@pytest.mark.parametrize(
    ("lines", "path", "value"),
    [
        ([], "layout.dp_shard", None),
        ([], "sharding", "zero3"),
        ([], "model.hidden", 4096),
        ([], "pipeline.micro_batch", 8),
        ([], "workload.seq_len", 2048),
        ([], "recompute", "selective"),
        ([], "workload.precision", "bf16"),
        ([], "layout.sequence_parallel", True),
        (["parallelism.data_parallel_shard_degree = -1"], "layout.dp_shard", None),
        (["parallelism.data_parallel_shard_degree = 1"], "sharding", "none"),
        (['parallelism.fsdp_reshard_after_forward = "never"'], "sharding", "zero2"),
        (["parallelism.context_parallel_degree = 4"], "layout.context", "all-gather"),
        (['activation_checkpoint.mode = "none"'], "recompute", "none"),
        (['activation_checkpoint.mode = "full"'], "recompute", "full"),
        (['activation_checkpoint.selective_ac_option = "op"'], "recompute", "selective"),
        (['activation_checkpoint.selective_ac_option = "1"'], "recompute", "full"),
        (['training.mixed_precision_param = "float32"'], "workload.precision", "fp32"),
    ],
)  # fmt: skip
def test_what_keys_mean(lines, path, value):
    assert read(*lines).value(path) == value


@pytest.mark.parametrize(
    ("converters", "section", "precision", "recipe"),
    [
        ("float8", "float8", "fp8", "tensorwise"),
        ("float8", 'float8]\nrecipe_name = "rowwise"\n[comm', "fp8", "rowwise"),
        ("quantize.linear.float8", "quantize.linear.float8", "fp8", "tensorwise"),
        (
            "quantize.linear.float8",
            'quantize.linear.float8]\nrecipe_name = "rowwise"\n[comm',
            "fp8",
            "rowwise",
        ),
        ("mx", "mx", "mxfp8", None),
        ("quantize.linear.mx", "quantize.linear.mx", "mxfp8", None),
        ("", "float8", "bf16", None),
    ],
)
def test_converters_say_the_precision_in_both_spellings(converters, section, precision, recipe):
    found = read(f'model.converters = ["{converters}"]', f"[{section}]")
    assert found.value("workload.precision") == precision
    assert found.value("workload.fp8_recipe") == recipe


def test_every_renamed_key_is_one_of_an_old_release_and_its_newest_name_is_known_too():
    newest = option_names("torchtitan", RELEASES[-1]) | {
        name.removeprefix("--") for name in names.TABLE.names
    }
    oldest = option_names("torchtitan", RELEASES[0])
    between = {"training.debug_moe_force_load_balance"}  # of 0.2.0 alone
    assert set(renamed_keys().values()) <= newest
    assert set(renamed_keys()) <= oldest | newest | between


@pytest.mark.parametrize(("old", "new"), renamed_keys().items())
def test_both_spellings_of_a_key_are_read_and_mean_the_same(old, new):
    found = [read(f"{key} = true") for key in (old, new) if key in known_keys()]
    facts = [{path: fact.value for path, fact in file.facts.items()} for file in found]
    unread = [[(option.value, option.why) for option in file.unread] for file in found]
    assert facts == [facts[0]] * len(found)
    assert unread == [unread[0]] * len(found)
    assert "no key" not in str(unread)


def test_of_two_spellings_the_newer_one_counts_and_a_contradiction_is_named():
    found = read('[float8]\nrecipe_name = "tensorwise"', '[quantize.linear.float8]\nrecipe_name = "rowwise"')
    (problem,) = (p for p in found.problems if p.field == "float8.recipe_name")
    assert problem.severity == "warning"
    assert "quantize.linear.float8.recipe_name" in problem.rule


@pytest.mark.parametrize(
    ("line", "release"),
    [("[training]\ncompile = true", "0.1.0"), ("[compile]\nenable = true", "0.2.2"), ("", "0.2.2")],
)
def test_the_release_is_the_one_that_knows_most_keys_and_a_remark_says_what_is_priced(line, release):
    found = read(line)
    assert found.release == f"torchtitan {release}"
    (remark,) = (problem for problem in found.problems if problem.field == "file")
    assert (remark.value, remark.severity) == (f"torchtitan {release}", "warning")
    assert "torchtitan 0.3.0 is priced" in remark.rule


def test_unknown_keys_are_unread_with_the_nearest():
    found = read("[training]\ntensor_parallel_degree = 8", "[my_section]\nspeed = 3")
    unread = {option.key: option.why for option in found.unread}
    assert "parallelism.tensor_parallel_degree" in unread["training.tensor_parallel_degree"]
    assert "my_section" in unread


@pytest.mark.parametrize("key", [key for key in LOSSES if not isinstance(LOSSES[key].usual, list)])
def test_a_lost_key_is_unread_unless_it_has_its_usual_value(key):
    assert is_known(tuple(key.split(".")), known_keys())
    usual = LOSSES[key].usual
    as_toml = f'"{usual}"' if isinstance(usual, str) else str(usual).lower()
    other = {bool: "false" if usual else "true", int: "7"}.get(type(usual), '"other"')
    assert key not in {option.key for option in import_torchtitan(f"{key} = {as_toml}\n{LLAMA}").unread}
    assert key in {option.key for option in import_torchtitan(f"{key} = {other}\n{LLAMA}").unread}


def test_options_that_today_are_unread_too_are_named_by_their_old_keys():
    found = read(
        "[training]\nenable_cpu_offload = true",
        '[parallelism]\nenable_async_tensor_parallel = true\nfsdp_reshard_after_forward = "never"',
    )
    keys = {option.key for option in found.unread}
    assert {"training.enable_cpu_offload", "parallelism.enable_async_tensor_parallel"} <= keys
    assert not [
        option
        for option in read("[training]\nenable_cpu_offload = false").unread
        if option.why in WHY.values()
    ]


def test_defaults_are_keys_of_the_releases():
    assert {*DEFAULTS, *USUAL} <= known_keys()


def test_split_points_are_first_layers_of_stages():
    found = read("[parallelism]\npipeline_parallel_degree = 4",
                 'pipeline_parallel_split_points = ["layers.7", "layers.16", "layers.25"]')  # fmt: skip
    assert [stage.layers for stage in found.value("stages")] == [7, 9, 9, 7]
    wrong = read("[parallelism]\npipeline_parallel_degree = 3",
                 'pipeline_parallel_split_points = ["layers.16", "layers.7"]')  # fmt: skip
    (problem,) = (p for p in wrong.problems if p.severity == "error")
    assert problem.field == "parallelism.pipeline_parallel_split_points"
    assert problem.suggestion == "layers.10, layers.21"


def test_problems_are_in_the_words_of_the_file():
    found = read("[training]\nlocal_batch_size = 3", "[parallelism]\npipeline_parallel_degree = 2",
                 "pipeline_parallel_microbatch_size = 2")  # fmt: skip
    (problem,) = (p for p in found.problems if p.severity == "error")
    assert (problem.field, problem.suggestion) == ("training.local_batch_size", "training.local_batch_size 4")
    assert not [fact for fact in found.facts.values() if "--" in fact.words]


@pytest.mark.parametrize(
    ("lines", "field"),
    [
        ("[parallelism]\ntensor_parallel_degree = 0", "parallelism.tensor_parallel_degree"),
        ("[parallelism]\ntensor_parallel_degree = false", "parallelism.tensor_parallel_degree"),
        ('[parallelism]\ntensor_parallel_degree = "all"', "parallelism.tensor_parallel_degree"),
        ('[training]\nenable_cpu_offload = "perhaps"', "training.enable_cpu_offload"),
        ('[activation_checkpoint]\nmode = "ful"', "activation_checkpoint.mode"),
        (
            '[parallelism]\nfsdp_reshard_after_forward = "allways"',
            "parallelism.fsdp_reshard_after_forward",
        ),
        ('[activation_checkpoint]\nselective_ac_option = "layers"', "activation_checkpoint.selective_ac_option"),
        ('[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = "Fast"',
         "parallelism.pipeline_parallel_schedule"),
    ],
)  # fmt: skip
def test_wrong_values_are_named_without_a_line(lines, field):
    (problem,) = (p for p in read(lines).problems if p.severity == "error")
    assert problem.field == field
    assert "line 0" not in problem.rule


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("[training]\nseq_len = ", "file"),
        ("[training]\nseq_len = 1\nseq_len = 2", "file"),
        ("[training]\nx = " + "[" * 3000, "file"),
        ("[training]\nx = " + "[" * 30 + "]" * 30, "file"),
        ("[training]\nx = " + "9" * 5000, "file"),
        ("[training]\n#" + "x" * 2**18, "file"),
        ("training = 3\n[model]\n", "training"),
        ("[parallelism.tensor_parallel_degree]\n", "parallelism.tensor_parallel_degree"),
    ],
)
def test_files_that_cannot_be_read_are_refused(text, field):
    with pytest.raises(InputError) as refused:
        import_torchtitan(text)
    assert [problem.field for problem in refused.value.problems] == [field]


def test_a_job_file_is_recognised_and_has_no_shell_variables():
    assert [detected(path.read_text()) for path in SAMPLES] == ["torchtitan"] * len(SAMPLES)
    with pytest.raises(InputError, match="has no shell variables"):
        read_framework_file(LLAMA, variables=["NGPU=8"])


def test_a_command_line_that_names_a_job_file_points_to_it():
    with pytest.raises(InputError, match=r"meshwright check jobs/mine\.toml"):
        read_framework_file("torchrun -m torchtitan.train --job.config_file jobs/mine.toml")


@pytest.mark.parametrize("flavor", ["8B", "8B_flex", "debugmodel"])
def test_a_flavor_is_found_by_its_sizes(flavor):
    found = import_text(f'[model]\nflavor = "{flavor}"\n', ImportRequest(on="h100-sxm-80gb x 8"))
    assert found.plan is not None
    assert found.plan.model == ("own-model" if flavor == "debugmodel" else "llama-3.1-8b")


def test_an_unknown_flavor_needs_the_name_of_its_model():
    found = import_torchtitan('[model]\nname = "llama3"\nflavor = "9B"\n')
    assert {problem.field for problem in found.problems} == {"file", "model.flavor"}
    assert found.value("model.layers") is None


PLANS = {
    "0.1.0-llama3-70b-float8": (256, "llama-3.1-70b", {"dp_replicate": 2, "dp_shard": 16, "tp": 8}),
    "0.1.0-llama3-8b-fsdp": (8, "llama-3.1-8b", {"dp_shard": 8}),
    "0.1.0-llama3-8b-pipeline": (16, "llama-3.1-8b", {"dp_shard": 2, "tp": 2}),
    "0.2.2-deepseek-v3-experts": (256, "deepseek-v3", {"dp_shard": 32, "tp": 2}),
    "0.2.2-llama3-405b-pipeline": (256, "llama-3.1-405b", {"dp_shard": 4, "tp": 8, "pp": 8}),
    "0.2.2-llama3-8b-context": (8, "llama-3.1-8b", {"cp": 8}),
    "0.2.2-llama3-stages": (4, "own-model", {"dp_shard": 2, "pp": 2}),
    "0.2.2-qwen3-30b-mxfp8": (16, "qwen3-30b-a3b", {"dp_replicate": 2, "dp_shard": 8, "ep": 8}),
    "0.2.2-qwen3-32b-replicas": (32, "qwen3-32b", {"dp_replicate": 4, "tp": 8}),
}
"""Devices, model and degrees of each sample; a pipeline in long form has its ranks elsewhere."""


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_samples_become_plans_for_torchtitan(path):
    devices, model, degrees = PLANS[path.stem]
    found = import_text(path.read_text(), ImportRequest(on=f"h100-sxm-80gb x {devices}"))
    assert found.foreign.release == f"torchtitan {path.stem.partition('-')[0]}"
    assert [problem for problem in found.problems if problem.severity == "error"] == []
    assert (found.plan.stack, found.plan.model) == ("torchtitan", model)
    layout = found.plan.layout if hasattr(found.plan, "layout") else found.plan.layouts["main"].grid
    axes = ("dp_replicate", "dp_shard", "cp", "tp", "pp", "ep")
    assert {axis: getattr(layout, axis) for axis in axes if getattr(layout, axis, 1) > 1} == degrees
