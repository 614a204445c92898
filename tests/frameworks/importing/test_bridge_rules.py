"""What Megatron-Bridge refuses or ignores is said by the name of the field."""

import pytest
from bridge_files import RUNNER, tree

from meshwright.frameworks.megatron_bridge.importing.importer import import_bridge


def problem_of(text, field):
    """The one problem of a field."""
    (found,) = [problem for problem in import_bridge(text).problems if problem.field == field]
    assert found.rule
    return found


def errors(text):
    return {problem.field for problem in import_bridge(text).problems if problem.severity == "error"}


MODEL = "model: {pipeline_model_parallel_size: 2, tensor_model_parallel_size: 2}\n"
WRONG = {
    "virtual stages without a pipeline": (
        tree(model={"pipeline_model_parallel_size": 1, "virtual_pipeline_model_parallel_size": 2}),
        "model.virtual_pipeline_model_parallel_size",
    ),
    "a layout with other virtual stages": (
        tree(
            model={
                "pipeline_model_parallel_size": 2,
                "virtual_pipeline_model_parallel_size": 2,
                "pipeline_model_parallel_layout": '"Et|tL"',
            }
        ),
        "model.virtual_pipeline_model_parallel_size",
    ),
    "a layout that no rank can share": (
        tree(model={"pipeline_model_parallel_size": 2, "pipeline_model_parallel_layout": '"Et|t|tL"'}),
        "model.pipeline_model_parallel_layout",
    ),
    "a layout beside numbers of the ends": (
        tree(
            model={
                "pipeline_model_parallel_size": 2,
                "pipeline_model_parallel_layout": '"Et|tL"',
                "num_layers_in_first_pipeline_stage": 1,
            }
        ),
        "model.num_layers_in_first_pipeline_stage",
    ),
    "a layout with other layers": (
        tree(
            model={
                "pipeline_model_parallel_size": 2,
                "pipeline_model_parallel_layout": '"Et|tL"',
                "num_layers": 3,
            }
        ),
        "model.pipeline_model_parallel_layout",
    ),
    "a layout of unknown names": (
        tree(
            model={
                "pipeline_model_parallel_size": 2,
                "pipeline_model_parallel_layout": "[[embedding, attention], [loss]]",
            }
        ),
        "model.pipeline_model_parallel_layout",
    ),
    "layers that do not divide": (
        tree(model={"pipeline_model_parallel_size": 4, "num_layers": 30}),
        "model.num_layers",
    ),
    "full without a method": (
        tree(model={"recompute_granularity": "full", "recompute_num_layers": 1}),
        "model.recompute_granularity",
    ),
    "full without a number": (
        tree(model={"recompute_granularity": "full", "recompute_method": "uniform"}),
        "model.recompute_granularity",
    ),
    "selective with a number": (
        tree(model={"recompute_granularity": "selective", "recompute_num_layers": 1}),
        "model.recompute_num_layers",
    ),
    "an unknown module": (
        tree(model={"recompute_granularity": "selective", "recompute_modules": "[attention]"}),
        "model.recompute_modules",
    ),
    "a granularity of another framework": (
        tree(model={"recompute_granularity": "blockwise"}),
        "model.recompute_granularity",
    ),
    "gathered without a distributed optimizer": (
        tree(ddp={"use_distributed_optimizer": "false", "overlap_param_gather": "true"}),
        "ddp.overlap_param_gather",
    ),
    "instances of no optimizer": (
        tree(ddp={"use_distributed_optimizer": "false", "num_distributed_optimizer_instances": 2}),
        "ddp.num_distributed_optimizer_instances",
    ),
    "an unknown strategy": (
        tree(ddp={"use_megatron_fsdp": "true", "data_parallel_sharding_strategy": "zero3"}),
        "ddp.data_parallel_sharding_strategy",
    ),
    "sharded states with pipelines first": (
        tree(ddp={"use_megatron_fsdp": "true"}, dist={"use_tp_pp_dp_mapping": "true"}),
        "dist.use_tp_pp_dp_mapping",
    ),
    "sharded states in plain checkpoints": (
        tree(ddp={"use_megatron_fsdp": "true"}, checkpoint={"ckpt_format": "torch_dist", "save": "here"}),
        "checkpoint.ckpt_format",
    ),
    "two kinds of sharded states": (
        tree(ddp={"use_megatron_fsdp": "true"}, dist={"use_torch_fsdp2": "true"}),
        "dist.use_torch_fsdp2",
    ),
    "two precisions": (tree(mixed_precision={"bf16": "true", "fp16": "true"}), "mixed_precision.fp16"),
    "an unknown precision": (MODEL + "mixed_precision: bf17_mixed\n", "mixed_precision"),
    "sequences that context does not divide": (
        tree(model={"context_parallel_size": 3}, dataset={"seq_length": 4096}),
        "model.context_parallel_size",
    ),
    "levels of context without sizes": (
        tree(model={"context_parallel_size": 4, "cp_comm_type": "a2a+p2p"}),
        "model.cp_comm_type",
    ),
    "levels of context with another product": (
        tree(model={"context_parallel_size": 4, "hierarchical_context_parallel_sizes": "[4, 2]"}),
        "model.hierarchical_context_parallel_sizes",
    ),
    "two sequence lengths": (
        tree(model={"seq_length": 4096}, dataset={"seq_length": 8192}),
        "model.seq_length",
    ),
    "batches that do not divide": (
        tree(train={"micro_batch_size": 3, "global_batch_size": 512}),
        "train.global_batch_size",
    ),
    "experts that ep does not divide": (
        tree(model={"num_moe_experts": 60, "expert_model_parallel_size": 8}),
        "model.expert_model_parallel_size",
    ),
    "experts and tp without sequence parallelism": (
        tree(model={"tensor_model_parallel_size": 2, "num_moe_experts": 8, "sequence_parallel": "false"}),
        "model.sequence_parallel",
    ),
    "a degree that is none": (
        tree(model={"tensor_model_parallel_size": "four"}),
        "model.tensor_model_parallel_size",
    ),
    "a degree that only the shell knows": (f"{RUNNER} -tp $TP", "model.tensor_model_parallel_size"),
}


@pytest.mark.parametrize("name", WRONG)
def test_contradictions_are_named_by_the_field(name):
    text, field = WRONG[name]
    assert errors(text) == {field}


RIGHT = {
    "a layout with its virtual stages": tree(
        model={
            "pipeline_model_parallel_size": 2,
            "virtual_pipeline_model_parallel_size": 2,
            "pipeline_model_parallel_layout": '"Et|t|t|tL"',
            "num_layers": 4,
        }
    ),
    "a layout without a word of them": tree(
        model={"pipeline_model_parallel_size": 2, "pipeline_model_parallel_layout": '"Et|t|t|tL"'}
    ),
    "full": tree(
        model={"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    ),
    "gathered": tree(ddp={"use_distributed_optimizer": "true", "overlap_param_gather": "true"}),
    "gathered by an optimizer that works layer by layer": tree(
        ddp={"use_distributed_optimizer": "false", "overlap_param_gather": "true"},
        optimizer={"optimizer": "dist_muon"},
    ),
    "levels of context": tree(
        model={
            "context_parallel_size": 4,
            "cp_comm_type": "a2a+p2p",
            "hierarchical_context_parallel_sizes": "[2, 2]",
        }
    ),
    "sharded states": tree(
        ddp={"use_megatron_fsdp": "true"}, checkpoint={"ckpt_format": "torch_dist", "save": "null"}
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_bridge_accepts_has_no_problem(name):
    assert not import_bridge(RIGHT[name]).problems


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (tree(model={"recompute_method": "uniform"}), "model.recompute_method"),
        (tree(model={"recompute_modules": "[mlp]"}), "model.recompute_modules"),
        (
            tree(model={"tensor_model_parallel_size": 1, "sequence_parallel": "true"}),
            "model.sequence_parallel",
        ),
        (tree(ddp={"data_parallel_sharding_strategy": "optim_grads"}), "ddp.data_parallel_sharding_strategy"),
        (
            tree(ddp={"use_distributed_optimizer": "true"}, optimizer={"use_distributed_optimizer": "false"}),
            "optimizer.use_distributed_optimizer",
        ),
        (tree(model={"tensor_parallel_size": 4}), "model.tensor_parallel_size"),
        (tree(train={"micro_bach_size": 4}), "train.micro_bach_size"),
        (tree(ddp={"use_distributed_optimiser": "true"}), "ddp.use_distributed_optimiser"),
        (tree(model={"num_layers": 4}, parallelism={"tensor_parallel": 4}), "parallelism.tensor_parallel"),
        ("run.py nemotronh_8b_pretrain_config", "recipe"),
        (f"{RUNNER} train.micro_batch_size=1 train.micro_batch_size=2", "train.micro_batch_size"),
    ],
)
def test_what_bridge_ignores_is_a_warning(text, field):
    found = [problem for problem in import_bridge(text).problems if problem.field == field]
    assert found
    assert {problem.severity for problem in found} == {"warning"}


@pytest.mark.parametrize(
    ("text", "near"),
    [
        (tree(model={"tensor_parallel_size": 4}), "model.tensor_model_parallel_size"),
        (tree(model={"virtual_pipeline_parallel_size": 4}), "model.virtual_pipeline_model_parallel_size"),
        (tree(train={"micro_bach_size": 4}), "train.micro_batch_size"),
        (tree(ddp={"overlap_param_gathr": "true"}), "ddp.overlap_param_gather"),
    ],
)
def test_an_unknown_field_comes_with_the_nearest(text, near):
    (problem,) = import_bridge(text).problems
    assert near in problem.suggestion


def test_an_unknown_word_stops_bridge_unless_it_asks_to_be_added():
    word = "model.tensor_parallel_size=4"
    assert problem_of(f"{RUNNER} {word}", "model.tensor_parallel_size").severity == "error"
    assert problem_of(f"{RUNNER} +{word}", "model.tensor_parallel_size").severity == "warning"
