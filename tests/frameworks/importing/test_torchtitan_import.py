"""torchtitan command lines as facts."""

import pytest

from meshwright.errors import InputError
from meshwright.frameworks.torchtitan.importing.importer import import_torchtitan

START = "NGPU=8 ./run_train.sh --module llama3 --config llama3_8b "


def facts(*options):
    return import_torchtitan(START + " ".join(options))


@pytest.mark.parametrize(
    ("options", "path", "value"),
    [
        ([], "layout.dp_shard", None),
        ([], "sharding", "zero3"),
        ([], "gather", "per-layer"),
        ([], "devices", 8),
        ([], "model.hidden", 4096),
        (["--parallelism.tensor-parallel-degree 4"], "layout.tp", 4),
        (["--parallelism.data_parallel_shard_degree=1"], "sharding", "none"),
        (["--parallelism.pipeline_parallel_degree 2"], "gather", "per-step"),
        (["--parallelism.fsdp_reshard_after_forward never"], "sharding", "zero2"),
        (["--parallelism.no_enable_sequence_parallel"], "layout.sequence_parallel", False),
        (["--training.local_batch_size 4"], "pipeline.micro_batch", 4),
        (["activation-checkpoint:full"], "recompute", "full"),
        (["--training.mixed_precision_param float32"], "workload.precision", "fp32"),
    ],
)
def test_what_options_mean(options, path, value):
    assert facts(*options).value(path) == value


def test_with_a_pipeline_the_local_batch_is_cut_into_micro_batches():
    found = facts("--parallelism.pipeline_parallel_degree 4 --training.local_batch_size 16",
                  "--parallelism.pipeline_parallel_microbatch_size 2")  # fmt: skip
    assert found.value("pipeline.micro_batch") == 2
    assert found.value("accumulation") == 8


@pytest.mark.parametrize(
    ("options", "layers"),
    [
        ([], [8, 9, 8, 7]),
        (["--parallelism.pipeline_parallel_schedule Interleaved1F1B"], [4, 5, 4, 4, 4, 4, 4, 3]),
        (
            [
                "--parallelism.pipeline_parallel_first_stage_less_layers 0",
                "--parallelism.pipeline_parallel_last_stage_less_layers 0",
            ],
            [8, 8, 8, 8],
        ),
        (["--parallelism.pipeline_parallel_layers_per_stage 9"], [8, 9, 8, 7]),
    ],
)
def test_stages_are_cut_as_torchtitan_cuts_them(options, layers):
    found = facts("--parallelism.pipeline_parallel_degree 4", *options)
    assert [stage.layers for stage in found.value("stages")] == layers


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (["--parallelism.pipeline_parallel_degree 2", "--parallelism.pipeline_parallel_schedule Fast"],
         "--parallelism.pipeline_parallel_schedule"),
        (["--parallelism.pipeline_parallel_degree 40"], "--parallelism.pipeline_parallel_degree"),
        (["--parallelism.pipeline_parallel_degree 2 --training.local_batch_size 3",
          "--parallelism.pipeline_parallel_microbatch_size 2"], "--training.local_batch_size"),
        (["--parallelism.fsdp_reshard_after_forward allways"], "--parallelism.fsdp_reshard_after_forward"),
        (["--training.mixed_precision_param float16"], "--training.mixed_precision_param"),
        (["activation-checkpoint:ful"], "activation-checkpoint"),
        (["--config llama3_9b"], "--config"),
    ],
)  # fmt: skip
def test_contradictions_are_named(options, field):
    assert field in {problem.field for problem in facts(*options).problems}


def test_unknown_options_are_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"did you mean --parallelism\.tensor_parallel_degree"):
        facts("--parallelism.tensor_paralel_degree 2")
