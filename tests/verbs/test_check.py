"""Checking plans and other people's files: faults in their words, figures, the smallest change that mends."""

import json
from dataclasses import replace

import pytest
from planning_questions import TWO_LAYOUTS

from meshwright import api
from meshwright.errors import InputError
from meshwright.model.load import load_model
from meshwright.plans.files.plan_file import dump_plan, parse_plan
from meshwright.plans.forms.conversion import expand
from meshwright.plans.overrides import apply_overrides
from meshwright.stack.load import parse_stack
from meshwright.verbs.check import check_text
from meshwright.verbs.import_ import ImportRequest, import_text

PLAN = """plan: 1
model: llama-3.1-8b
cluster: h100-sxm-80gb x 8
workload: {seq_len: 8192, global_batch: 64}
layout: {dp_shard: 4, tp: 2}
sharding: zero1
"""
SCRIPT = """pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --group-query-attention \\
 --num-query-groups 8 --ffn-hidden-size 14336 --seq-length 8192 --micro-batch-size 1 --global-batch-size 64 --bf16 \\
 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --swiglu """
HERE = ImportRequest(model="llama-3.1-8b", on="h100-sxm-80gb x 8")


def checked(text, **wanted):
    return check_text(text, "file", ImportRequest(**wanted))


def script(*options, **wanted):
    return check_text(
        SCRIPT + " ".join(options),
        "file",
        ImportRequest(**{"model": "llama-3.1-8b", "on": "h100-sxm-80gb x 8"} | wanted),
    )


def test_a_good_plan_is_ok_and_laid_beside_the_best():
    found = checked(PLAN)
    assert found.ok
    data = found.to_json()
    json.dumps(data, allow_nan=False)
    assert data["memory_bytes"]["total"] < data["memory_bytes"]["capacity"]
    assert data["best_step_time_s"] == min(found.fastest.report.step_time_s, found.report.step_time_s)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("micro_batch", "fits"), [(1, True), (8, False)])
def test_a_plan_of_two_layouts_is_laid_beside_the_best_of_one(micro_batch, fits):
    text = TWO_LAYOUTS.replace("micro_batch: 1", f"micro_batch: {micro_batch}")
    found = checked(text.replace("global_batch: 64", f"global_batch: {64 * micro_batch}"))
    assert found.report.fits == fits
    (problem,) = found.problems
    assert problem.field == ("step_time_s" if fits else "memory_bytes.total")
    assert problem.suggestion.startswith("layout wide for all layers, ")
    assert found.recommended.report.step_time_s < found.report.step_time_s


def test_a_plan_that_does_not_fit_gets_the_smallest_change():
    found = checked(PLAN.replace("sharding: zero1", "pipeline: {micro_batch: 8}"))
    assert not found.ok
    (problem,) = [p for p in found.problems if p.severity == "error"]
    assert problem.field == "memory_bytes.total"
    assert "pipeline rank 0" in problem.rule
    assert len(found.mended.settings) <= 2
    assert found.mended.settings[0] in problem.suggestion


@pytest.mark.slow
def test_the_best_known_plan_is_never_slower_than_the_mended_one():
    big = PLAN.replace("llama-3.1-8b", "llama-3.1-70b").replace("x 8", "x 64")
    big = big.replace("{dp_shard: 4, tp: 2}", "{pp: 8, dp_shard: 8, tp: 1}")
    data = checked(
        big + "pipeline: {schedule: interleaved-1f1b, virtual_stages: 3, micro_batch: 1}\n"
    ).to_json()
    assert data["change"] is not None
    assert data["best_step_time_s"] <= data["change"]["step_time_s"]


def test_a_much_slower_plan_is_named_beyond_the_interval():
    slow = PLAN.replace("{dp_shard: 4, tp: 2}", "{tp: 8}").replace("zero1", "none")
    warnings = [p.field for p in checked(slow + "recompute: full\n").problems if p.severity == "warning"]
    assert "step_time_s" in warnings


def test_nouns_and_numbers_of_a_plan_can_be_others():
    found = checked(PLAN, on="a100-sxm-80gb x 8", global_batch=32)
    assert (found.plan.cluster, found.plan.workload.global_batch) == ("a100-sxm-80gb x 8", 32)


def test_an_illegal_plan_has_problems_and_no_figures():
    found = checked(PLAN.replace("dp_shard: 4, tp: 2", "dp_shard: 1, tp: 8").replace("x 8", "x 8")
                    .replace("seq_len: 8192", "seq_len: 8190"))  # fmt: skip
    assert not found.ok
    assert found.to_json()["step_time_s"] is None


def test_all_problems_of_an_adapter_come_at_once():
    adapter = "{rank: 0, alpha: -1, targets: [qq], base: nf5}"
    found = checked(PLAN.replace("{seq_len", f"{{task: lora, adapter: {adapter}, seq_len"))
    fields = {problem.field for problem in found.problems}
    assert {f"workload.adapter.{name}" for name in ("rank", "alpha", "targets", "base")} <= fields


def test_the_model_is_found_by_its_sizes():
    sizes = "--num-layers 80 --hidden-size 8192 --num-attention-heads 64 --ffn-hidden-size 28672"
    on = "h100-sxm-80gb x 64"
    with pytest.raises(InputError, match=r"sizes are those of llama-2-70b, llama-3.1-70b"):
        script(sizes, model=None, on=on)
    assert script("--hidden-size 12288 --num-layers 96 --num-attention-heads 96 --num-query-groups 96",
                  "--ffn-hidden-size 49152", model=None, on=on).problems  # fmt: skip
    with pytest.raises(InputError, match="those of none in the zoo"):
        script("--hidden-size 4352", model=None)


def test_a_model_of_other_sizes_is_named_in_the_words_of_the_file():
    found = check_text(SCRIPT.replace("--num-layers 32", "--num-layers 40"), "file", HERE)
    assert [(p.field, p.severity) for p in found.problems] == [("--num-layers", "error")]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (["--tensor-model-parallel-size 3"], "--tensor-model-parallel-size"),
        (["--tensor-model-parallel-size 16"], "--tensor-model-parallel-size"),
        (["--pipeline-model-parallel-size 2", "--num-virtual-stages-per-pipeline-rank 32"],
         "--num-virtual-stages-per-pipeline-rank"),
        (["--micro-batch-size 3"], "--global-batch-size"),
        (["--context-parallel-size 8", "--seq-length 8200"], "--seq-length"),
    ],
)  # fmt: skip
def test_illegal_plans_are_told_in_the_words_of_the_file(options, field):
    found = script(*options)
    assert field in {problem.field for problem in found.problems if problem.severity == "error"}


def test_an_illegal_file_is_mended_too():
    found = script("--micro-batch-size 16")
    assert not found.ok
    assert found.mended is not None
    assert any(setting.startswith("micro_batch=") for setting in found.mended.settings)


def test_more_processes_than_devices_is_a_warning():
    text = SCRIPT.replace("pretrain_gpt.py", "torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py")
    found = check_text(text, "file", HERE)
    assert [p.severity for p in found.problems if "starts 32 processes" in p.rule] == ["warning"]


def test_a_shell_variable_can_be_said():
    text = SCRIPT + "--tensor-model-parallel-size $TP"
    with pytest.raises(InputError, match="NAME=value"):
        check_text(text, "file", replace(HERE, variables=("TP 2",)))
    assert not check_text(text, "file", HERE).ok
    found = check_text(text, "file", replace(HERE, variables=("TP=2",)))
    assert found.plan.layout.tp == 2


def test_a_file_that_runs_its_framework_in_its_own_way_brings_a_stack():
    text = SCRIPT.replace("--overlap-param-gather", "").replace(
        "--overlap-grad-reduce", "--grad-reduce-in-bf16"
    )
    imported = import_text(text, HERE)
    data = imported.to_json("own")
    stack, plan = parse_stack(data["beside"]["own-stack.yaml"]), parse_plan(data["plan_text"])
    assert stack.overlap_gradient_reduction is False
    assert plan.stack == "own-stack.yaml"
    assert plan.dtypes.written == {"gradient": "bf16", "reduce": "bf16"}
    assert import_text(SCRIPT, HERE).to_json("own")["beside"] == {}


@pytest.mark.parametrize(
    ("sizes", "parameters"),
    [
        (
            "--hidden-size 4352 --ffn-hidden-size 11776 --swiglu --normalization RMSNorm --vocab-size 32000",
            6.4e9,
        ),
        ("--hidden-size 4352 --num-query-groups 32 --vocab-size 50257 --ffn-hidden-size 17408", 7.5e9),
        (
            "--num-experts 4 --moe-ffn-hidden-size 1024 --swiglu --normalization RMSNorm --vocab-size 32000",
            3.1e9,
        ),
    ],
)
def test_a_model_that_only_the_file_describes_is_written_beside_the_plan(sizes, parameters, tmp_path):
    script = SCRIPT.replace("--swiglu", "").replace(
        "--ffn-hidden-size 14336", "--untie-embeddings-and-output-weights"
    )
    script = script.replace("--hidden-size 4096", "") if "--hidden-size" in sizes else script
    script = script.replace("--num-query-groups 8", "") if "--num-query-groups" in sizes else script
    wanted = ImportRequest(on="h100-sxm-80gb x 8", source="megatron")
    imported = import_text(script + sizes, wanted)
    assert not [str(p) for p in imported.problems if p.severity == "error"]
    assert imported.model.parameters == pytest.approx(parameters, rel=0.15)
    data = imported.to_json("own")
    for name, text in {"plan.yaml": data["plan_text"], **data["beside"]}.items():
        (tmp_path / name).write_text(text)
    again = load_model(str(tmp_path / "own-model.json"))
    assert again.parameters == imported.model.parameters
    assert api.predict(tmp_path / "plan.yaml").step_time_s > 0


def test_what_a_condition_may_change_is_a_warning_and_can_be_said():
    text = 'TP=2\nif [ "$DEBUG" = 1 ]; then TP=8; fi\n' + SCRIPT + "--tensor-model-parallel-size $TP"
    found = import_text(text, HERE)
    assert found.plan.layout.tp == 2
    assert [p.field for p in found.problems if "may set it" in p.rule] == ["TP"]
    assert import_text(text, replace(HERE, variables=("TP=8",))).plan.layout.tp == 8


@pytest.mark.slow
def test_a_vocabulary_tells_models_apart():
    sizes = "--num-layers 80 --hidden-size 8192 --num-attention-heads 64 --ffn-hidden-size 28672 --vocab-size 128256"
    found = script(sizes, model=None, on="h100-sxm-80gb x 64")
    assert found.plan.model == "llama-3.1-70b"


def test_what_is_assumed_of_batch_and_recomputation_is_said():
    config = '{"train_batch_size": "auto", "zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}'
    warned = {p.field for p in import_text(config, replace(HERE, seq_len=4096)).problems}
    assert {"global_batch", "recompute"} <= warned


def test_a_plan_is_not_imported():
    with pytest.raises(InputError, match="is a plan already"):
        import_text(PLAN, HERE)


def test_an_imported_plan_says_where_each_value_stood():
    text = import_text(SCRIPT + "--tensor-model-parallel-size 2", HERE).to_json("s")["plan_text"]
    assert "tp: 2 # --tensor-model-parallel-size 2" in text


@pytest.mark.parametrize("text", ["", "\x00", "plan: 1\n", "a: b", "[1, 2", "plan: 1\nlayouts: {}"])
def test_what_can_not_be_read_is_wrong_input(text):
    with pytest.raises(InputError):
        check_text(text, "file", HERE)


@pytest.mark.slow
def test_what_a_check_suggests_works_as_written():
    text = PLAN.replace("dp_shard: 4, tp: 2", "pp: 4, dp_shard: 2") + "stack: meshwright\nrecompute: full\n"
    plan = parse_plan(text + "pipeline: {schedule: v-min, virtual_stages: 2}\n")
    found = checked(dump_plan(plan))
    (hint,) = [p.suggestion for p in found.problems if p.field == "step_time_s"]
    settings = hint.rpartition(": ")[0].split(", ")
    assert {"pp=1", "schedule=1f1b", "virtual_stages=1"} <= set(settings)
    changed = apply_overrides(plan, settings, None)
    arch = load_model(plan.model).architecture
    assert expand(changed, arch) == expand(found.recommended.plan, arch)


def test_the_smallest_change_names_the_degrees_that_go_with_it():
    found = checked(PLAN.replace("{dp_shard: 4, tp: 2}", "{pp: 1, dp_shard: 8}"))
    data = found.to_json()["change"]
    assert set(data["settings"]) < set(data["all_settings"])
    assert ", ".join(data["all_settings"]) in found.problems[0].suggestion


@pytest.mark.parametrize("schedule", ["zb-v", "dualpipe", "interleaved-1f1b", "looped-bfs"])
def test_a_schedule_of_several_stages_needs_a_pipeline(schedule):
    found = checked(PLAN + f"stack: generic\npipeline: {{schedule: {schedule}, virtual_stages: 2}}\n")
    (problem,) = [p for p in found.problems if p.severity == "error"]
    assert "needs pp > 1" in problem.rule
    assert problem.suggestion == "pp: 2, dp_shard: 2, or schedule: 1f1b, virtual_stages: 1"


@pytest.mark.slow
@pytest.mark.parametrize(("schedule", "expected"), [("zb-h1", ["recompute"]), ("1f1b", [])])
def test_recomputation_that_spares_nothing_is_remarked(schedule, expected):
    text = PLAN.replace("dp_shard: 4, tp: 2", "pp: 4, dp_shard: 2")
    text += "stack: meshwright\nrecompute: full\npipeline: {schedule: SCHEDULE}\n"
    found = checked(text.replace("SCHEDULE", schedule))
    assert [p.field for p in found.problems if "spares next to nothing" in p.rule] == expected


def test_a_plan_that_trains_adapters_holds_them_once(tmp_path):
    text = PLAN.replace("{seq_len: 8192,", "{task: lora, seq_len: 8192,")
    (tmp_path / "plan.yaml").write_text(text)
    predicted = api.predict(tmp_path / "plan.yaml")
    assert checked(text).report.memory_bytes == predicted.memory_bytes
