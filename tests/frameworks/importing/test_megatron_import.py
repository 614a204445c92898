"""Megatron scripts as facts: what is said, what is derived, what is refused."""

import pytest

from meshwright.errors import InputError
from meshwright.frameworks.importing.command_line import GivenOption
from meshwright.frameworks.importing.imported_file import Stage
from meshwright.frameworks.megatron.importing.importer import import_megatron
from meshwright.frameworks.megatron.importing.pipeline_layout import layout_of, read_layout
from meshwright.plans.layers.layer_assignment import balanced_counts

SCRIPT = """#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS=8
NODES=${NNODES:-4}
TP=4
PARALLEL=(
    --tensor-model-parallel-size $TP
    --pipeline-model-parallel-size 2   # two nodes
    --sequence-parallel
    --use-distributed-optimizer
)
MODEL="--num-layers 32 --hidden-size 4096 --num-attention-heads 32 \\
       --group-query-attention --num-query-groups 8 --ffn-hidden-size 14336 --swiglu"
torchrun --nproc_per_node $GPUS --nnodes $NODES pretrain_gpt.py \\
    ${PARALLEL[@]} $MODEL --seq-length 8192 --micro-batch-size 1 --global-batch-size 128 --bf16 \\
    --data-path $DATA_PATH
"""


def facts(*options, script="pretrain_gpt.py --micro-batch-size 1 "):
    return import_megatron(script + " ".join(options))


def problem_fields(*options):
    return {(p.field, p.severity) for p in facts(*options).problems}


def test_a_launch_script_says_degrees_batch_model_and_processes():
    found = import_megatron(SCRIPT)
    assert not found.problems
    values = {path: fact.value for path, fact in found.facts.items()}
    assert (
        values
        | {
            "layout.tp": 4,
            "layout.pp": 2,
            "layout.sequence_parallel": True,
            "sharding": "zero1",
            "devices": 32,
            "workload.seq_len": 8192,
            "workload.global_batch": 128,
            "workload.precision": "bf16",
            "model.layers": 32,
            "model.kv_heads": 8,
            "recompute": "none",
        }
        == values
    )
    assert found.words("layout.tp") == "--tensor-model-parallel-size 4"


def test_the_same_options_as_yaml():
    text = "MODEL_ARGS:\n  --tensor-model-parallel-size: 4\n  --sequence-parallel: true\n  --bf16: false\n"
    found = import_megatron(text)
    assert (found.value("layout.tp"), found.value("layout.sequence_parallel")) == (4, True)
    assert found.value("workload.precision") == "fp32"


@pytest.mark.parametrize(
    ("options", "path", "value"),
    [
        (["--num-experts 8", "--tensor-model-parallel-size 2", "--sequence-parallel"], "layout.etp", 2),
        (["--num-experts 8", "--expert-tensor-parallel-size 1"], "layout.etp", 1),
        (
            ["--use-megatron-fsdp", "--data-parallel-sharding-strategy optim_grads_params"],
            "sharding",
            "zero3",
        ),
        (["--use-megatron-fsdp"], "sharding", "zero3"),
        (["--use-megatron-fsdp", "--data-parallel-sharding-strategy no_shard"], "sharding", "none"),
        (["--use-torch-fsdp2"], "sharding", "zero3"),
        (["--recompute-activations"], "recompute", "selective"),
        (
            ["--recompute-granularity selective", "--recompute-modules core_attn moe_act"],
            "recompute",
            ("core_attn", "moe_act"),
        ),
        (["--bf16", "--fp8-format e4m3", "--fp8-recipe mxfp8"], "workload.precision", "mxfp8"),
        (["--bf16", "--fp4-format e2m1"], "workload.precision", "nvfp4"),
        (["--hidden-size 64", "--num-attention-heads 8"], "model.kv_heads", 8),
        (["--grad-reduce-in-bf16", "--bf16"], "dtypes.reduce", "16-bit"),
        (["--num-layers-per-virtual-pipeline-stage 4"], "layers_per_stage", 4),
        (["--moe-token-dispatcher-type flex", "--moe-enable-deepep"], "stack.deduplicates_exchange", True),
        (["--overlap-moe-expert-parallel-comm"], "stack.overlap_expert_exchange", True),
        (["--transformer-impl local"], "stack.norm_products", ()),
        (
            ["--moe-token-dispatcher-type alltoall", "--moe-enable-deepep"],
            "stack.deduplicates_exchange",
            None,
        ),
    ],
)
def test_what_options_mean(options, path, value):
    assert facts(*options).value(path) == value


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        ("Et|tL", [(1, 1, 0), (0, 1, 1)]),
        ("E|(tt|)*3tL", [(1, 0, 0), (0, 2, 0), (0, 2, 0), (0, 2, 0), (0, 1, 1)]),
        ("Et*3|(t|tt|)*2L", [(1, 3, 0), (0, 1, 0), (0, 2, 0), (0, 1, 0), (0, 2, 0), (0, 0, 1)]),
    ],
)
def test_stages_that_are_written_out(text, stages):
    found = facts(f"--pipeline-model-parallel-layout '{text}'", "--pipeline-model-parallel-size 1")
    assert found.value("stages") == tuple(Stage(bool(e), layers, bool(h)) for e, layers, h in stages)


@pytest.mark.parametrize(
    "text", ["tt|t", "Et|tLL", "Ex|tL", "E(t|L", "E" + "(t|)*99999" * 3 + "L", "Et**3|L"]
)
def test_stages_that_can_not_be(text):
    found = facts(f"--pipeline-model-parallel-layout '{text}'")
    assert [p.field for p in found.problems if p.severity == "error"] == ["--pipeline-model-parallel-layout"]


def test_stages_from_the_numbers_of_the_ends():
    options = [
        "--num-layers 61",
        "--pipeline-model-parallel-size 16",
        "--decoder-first-pipeline-num-layers 3",
    ]
    found = facts(*options, "--decoder-last-pipeline-num-layers 2")
    assert [stage.layers for stage in found.value("stages")] == [3, *[4] * 14, 2]


@pytest.mark.parametrize(
    ("layers", "ranks", "last", "stages"),
    [
        (64, 4, 12, [4, 11, 11, 6, 4, 11, 11, 6]),
        (20, 2, 12, [4, 6, 4, 6]),
        (63, 4, 12, None),
        (60, 4, 10, None),
        (24, 2, 12, None),
    ],
)
def test_numbers_of_the_ends_are_those_of_ranks_with_all_their_chunks(layers, ranks, last, stages):
    """As ``get_num_layers_to_build`` of Megatron-Core's ``transformer_block.py`` has it."""
    found = facts(
        f"--num-layers {layers}",
        f"--pipeline-model-parallel-size {ranks}",
        "--num-virtual-stages-per-pipeline-rank 2",
        "--decoder-first-pipeline-num-layers 8",
        f"--decoder-last-pipeline-num-layers {last}",
    )
    told = found.facts.get("stages")
    assert (told and [stage.layers for stage in told.value]) == stages


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--bf16", "--fp16"], ("--fp16", "error")),
        (["--overlap-param-gather", "--overlap-grad-reduce"], ("--overlap-param-gather", "error")),
        (["--num-experts 8", "--tensor-model-parallel-size 2"], ("--sequence-parallel", "error")),
        (["--num-experts 6", "--expert-model-parallel-size 4"], ("--expert-model-parallel-size", "error")),
        (["--expert-model-parallel-size 4"], ("--expert-model-parallel-size", "error")),
        (["--num-layers 30", "--pipeline-model-parallel-size 4"], ("--num-layers", "error")),
        (["--recompute-granularity full"], ("--recompute-granularity", "error")),
        (["--recompute-method uniform"], ("--recompute-method", "warning")),
        (["--num-query-groups 8"], ("--num-query-groups", "warning")),
        (["--num-virtual-stages-per-pipeline-rank 2"], ("--num-virtual-stages-per-pipeline-rank", "error")),
        (["--use-torch-fsdp2", "--pipeline-model-parallel-size 2"], ("--use-torch-fsdp2", "error")),
        (["--micro-batch-size 2"], ("--micro-batch-size", "warning")),
        (["--tensor-model-parallel-size $TP"], ("--tensor-model-parallel-size", "error")),
        (["--tensor-model-parallel-size eight"], ("--tensor-model-parallel-size", "error")),
        (["--checkpoint-activations", "--DDP-impl local"], ("--DDP-impl", "warning")),
    ],
)
def test_what_the_file_alone_contradicts(options, problem):
    assert problem in problem_fields(*options)


def test_an_unknown_option_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="did you mean --tensor-model-parallel-size"):
        facts("--tensor-model-paralel-size 4")


def test_another_program_may_have_options_of_its_own():
    found = facts("--extra-vocab-size 3", script="torchrun pretrain_qwen.py --micro-batch-size 1 ")
    assert [(p.field, p.severity) for p in found.problems] == [("--extra-vocab-size", "warning")]


def test_one_connection_is_named_where_it_hurts():
    fsdp = (
        "export CUDA_DEVICE_MAX_CONNECTIONS=1\n"
        "pretrain_gpt.py --micro-batch-size 1 --use-megatron-fsdp --ckpt-format fsdp_dtensor"
    )
    assert [p.field for p in import_megatron(fsdp).problems] == ["CUDA_DEVICE_MAX_CONNECTIONS"]


def test_what_has_no_counterpart_is_said():
    found = facts("--optimizer-cpu-offload", "--recompute-granularity full --recompute-method block",
                  "--recompute-num-layers 4", "--cp-comm-type a2a p2p")  # fmt: skip
    assert {unread.key for unread in found.unread} == {"--cp-comm-type"}
    assert (found.value("recompute"), found.value("recomputed_first")) == ("full", 4)
    groups = facts("--recompute-granularity full --recompute-method uniform --recompute-num-layers 4")
    assert {unread.key for unread in groups.unread} == {"--recompute-num-layers"}
    assert found.value("offload.optimizer") == 1.0
    words = "--recompute-granularity full --recompute-method block --recompute-num-layers many"
    assert [problem.field for problem in facts(words).problems] == ["--recompute-num-layers"]
    shared = facts("--optimizer-cpu-offload", "--optimizer-offload-fraction 0.25")
    assert shared.value("offload.optimizer") == 0.25


CONTEXTS = {
    "--cp-comm-type p2p": None,
    "--cp-comm-type all_gather": "all-gather",
    "--cp-comm-type a2a": "ulysses",
    "--cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 4": "ring+ulysses2",
}


@pytest.mark.parametrize(("options", "said"), CONTEXTS.items())
def test_forms_of_context_parallelism_are_read(options, said):
    found = facts("--context-parallel-size 8", options)
    assert found.value("layout.context") == said
    assert not found.unread


@pytest.mark.parametrize("text", ["", "\x00\xff", "hello world", "{" * 5000, "--", "a: [1"])
def test_other_text_is_refused(text):
    with pytest.raises(InputError):
        import_megatron(text)


@pytest.mark.parametrize(
    ("options", "replaced"),
    [
        (("--num-layers 10", "--pipeline-model-parallel-size 4"), None),
        (("--num-layers 61", "--pipeline-model-parallel-size 16"), None),
        (("--num-layers 61", "--pipeline-model-parallel-size 16", "--mtp-num-layers 2"), None),
        (("--num-experts 8", "--expert-model-parallel-size 3"), "--expert-model-parallel-size 3"),
    ],
)
def test_a_suggested_option_mends(options, replaced):
    (problem,) = import_megatron(" ".join(["pretrain_gpt.py --micro-batch-size 1", *options])).problems
    mended = [option for option in options if option != replaced] + [problem.suggestion]
    assert not problem_fields(*mended)


@pytest.mark.parametrize(("layers", "stages"), [(10, 4), (61, 16), (7, 7), (5, 1), (126, 16)])
def test_a_suggested_layout_holds_every_layer_in_balanced_stages(layers, stages):
    problems = []
    read = read_layout(GivenOption("layout", (layout_of(layers, stages),), 0), problems)
    assert not problems
    assert [stage.layers for stage in read] == list(balanced_counts(layers, stages))
    assert [stage.embed for stage in read].index(True) == 0
    assert read[-1].head
