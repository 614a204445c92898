import re

import pytest
from bridge_files import RUNNER, tree

from meshwright.frameworks.importing.imported_file import Stage
from meshwright.frameworks.importing.model_match import matching_zoo_models
from meshwright.frameworks.importing.plan_from_facts import Target, assemble
from meshwright.frameworks.megatron_bridge.importing.importer import import_bridge
from meshwright.frameworks.megatron_bridge.recipes import model_of, recipe_names
from meshwright.model.load import load_model


def test_words_of_hydra_are_facts_with_their_words():
    foreign = import_bridge("model.tensor_model_parallel_size=4 train.global_batch_size=512")
    assert foreign.value("layout.tp") == 4
    assert foreign.words("layout.tp") == "model.tensor_model_parallel_size 4"
    assert foreign.value("workload.global_batch") == 512
    assert (foreign.source, foreign.value("stack")) == ("bridge", "megatron-bridge")
    assert not foreign.problems


def test_a_tree_says_the_same_as_words():
    fields = {
        "tensor_model_parallel_size": 4,
        "recompute_granularity": "selective",
        "recompute_modules": "[mlp, moe_act]",
    }
    words = " ".join(f"'model.{name}={value}'" for name, value in fields.items())
    found = import_bridge(f"run.py {words}")
    assert found.facts == import_bridge(tree(model=fields)).facts
    assert found.value("recompute") == ("mlp", "moe_act")


def test_a_file_states_only_what_it_says():
    foreign = import_bridge(tree(train={"micro_batch_size": 2}))
    assert set(foreign.facts) == {"stack", "pipeline.micro_batch"}


def test_the_flags_of_the_runner_stand_above_its_recipe():
    foreign = import_bridge(
        f"{RUNNER} --recipe llama3_70b_pretrain_32gpu_h100_bf16_config -tp 8 --global_batch_size 256"
    )
    assert (foreign.value("layout.tp"), foreign.words("layout.tp")) == (
        8,
        "model.tensor_model_parallel_size 8",
    )
    assert foreign.value("workload.global_batch") == 256
    assert (foreign.value("layout.pp"), foreign.value("pipeline.virtual_stages")) == (4, 5)
    assert "llama3_70b_pretrain_32gpu_h100_bf16_config" in foreign.words("layout.pp")
    assert (foreign.value("model"), foreign.value("devices")) == ("llama-3.1-70b", 32)
    assert [unread.value for unread in foreign.unread if unread.key == "recipe"]


def test_model_and_mode_name_a_recipe_too():
    foreign = import_bridge(f"{RUNNER} --model qwen3_30b_a3b --mode pretrain -ep 8")
    assert (foreign.value("model"), foreign.value("layout.ep")) == ("qwen3-30b-a3b", 8)
    tuned = import_bridge(f"{RUNNER} --model llama31_8b --mode sft")
    assert (tuned.value("model"), tuned.value("workload.task")) == ("llama-3.1-8b", "sft")


def test_python_that_changes_a_recipe():
    text = """
from megatron.bridge.recipes.llama import llama31_8b_pretrain_config

cfg = llama31_8b_pretrain_config()
cfg.model.context_parallel_size = 4
cfg.model.recompute_granularity = "selective"
cfg.model.recompute_modules = ["mlp", "layernorm"]
cfg.model.virtual_pipeline_model_parallel_size = None
cfg.mixed_precision = "bf16_mixed"
"""
    foreign = import_bridge(text)
    assert (foreign.value("model"), foreign.value("layout.cp")) == ("llama-3.1-8b", 4)
    assert foreign.value("recompute") == ("mlp", "layernorm")
    assert not foreign.problems


def test_a_recipe_in_a_comment_of_a_tree_is_its_recipe():
    text = "# Overrides of llama31_8b_pretrain_config\n" + tree(model={"context_parallel_size": 1})
    foreign = import_bridge(text)
    assert (foreign.value("model"), foreign.value("layout.cp")) == ("llama-3.1-8b", 1)
    assert foreign.value("workload.seq_len") == 8192


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("bf16_mixed", "bf16"),
        ("bf16-mixed", "bf16"),
        ("fp16_mixed", "fp16"),
        ("bf16_with_fp8_current_scaling_mixed", "fp8"),
        ("bf16_with_mxfp8_mixed", "mxfp8"),
        ("bf16_with_nvfp4_mixed", "nvfp4"),
    ],
)
def test_precisions_by_name(name, precision):
    foreign = import_bridge(tree(model={"sequence_parallel": "false"}) + f"mixed_precision: {name}\n")
    assert foreign.value("workload.precision") == precision


@pytest.mark.parametrize(
    ("fields", "precision", "gradient"),
    [
        ({"bf16": "true", "grad_reduce_in_fp32": "false"}, "bf16", "16-bit"),
        (
            {"bf16": "true", "fp8": "hybrid", "fp8_recipe": "tensorwise", "grad_reduce_in_fp32": "true"},
            "fp8",
            "fp32",
        ),
        ({"bf16": "true", "fp8": "e4m3", "fp8_recipe": "mxfp8"}, "mxfp8", None),
        ({"bf16": "true", "fp4": "e2m1"}, "nvfp4", None),
    ],
)
def test_precisions_by_their_fields(fields, precision, gradient):
    foreign = import_bridge(tree(mixed_precision=fields))
    assert foreign.value("workload.precision") == precision
    assert foreign.value("dtypes.gradient") == foreign.value("dtypes.reduce") == gradient


def test_a_precision_by_name_replaces_the_recipes_fields():
    recipe = "deepseek_v3_pretrain_256gpu_b200_fp8mx_config"
    assert import_bridge(f"run.py {recipe}").value("workload.precision") == "mxfp8"
    assert import_bridge(f"run.py {recipe} mixed_precision=bf16_mixed").value("workload.precision") == "bf16"


@pytest.mark.parametrize(
    ("fields", "sharding", "gather"),
    [
        ({"use_distributed_optimizer": "true"}, "zero1", None),
        ({"use_distributed_optimizer": "false"}, "none", None),
        ({"use_megatron_fsdp": "true", "data_parallel_sharding_strategy": "optim_grads"}, "zero2", None),
        (
            {"use_megatron_fsdp": "true", "data_parallel_sharding_strategy": "optim_grads_params"},
            "zero3",
            "per-layer",
        ),
        ({"use_megatron_fsdp": "true", "data_parallel_sharding_strategy": "optim"}, "zero1", None),
        ({"use_megatron_fsdp": "true"}, "none", None),
        ({"overlap_grad_reduce": "true"}, None, None),
    ],
)
def test_sharding(fields, sharding, gather):
    foreign = import_bridge(tree(ddp=fields))
    assert (foreign.value("sharding"), foreign.value("gather")) == (sharding, gather)


@pytest.mark.parametrize(
    "layout",
    [
        '"Et*3|(tt|)*2t*3L"',
        "[[embedding, decoder, decoder, decoder], [decoder, decoder], [decoder, decoder],"
        " [decoder, decoder, decoder, loss]]",
    ],
)
def test_layouts_as_text_and_as_lists(layout):
    foreign = import_bridge(
        tree(model={"pipeline_model_parallel_size": 4, "pipeline_model_parallel_layout": layout})
    )
    stages = foreign.value("stages")
    assert [stage.layers for stage in stages] == [3, 2, 2, 3]
    assert stages[0] == Stage(True, 3, False)
    assert stages[-1] == Stage(False, 3, True)
    assert not foreign.problems


def test_ends_that_count_the_embedding_and_the_loss():
    fields = {
        "num_layers": 126,
        "pipeline_model_parallel_size": 8,
        "account_for_embedding_in_pipeline_split": "true",
        "account_for_loss_in_pipeline_split": "true",
    }
    foreign = import_bridge(tree(model=fields))
    assert [stage.layers for stage in foreign.value("stages")] == [15, *[16] * 6, 15]
    assert "account_for_loss_in_pipeline_split true" in foreign.words("stages")


def test_experts_lie_on_one_rank_where_nobody_says_otherwise():
    spread = tree(model={"tensor_model_parallel_size": 4, "expert_model_parallel_size": 8})
    assert import_bridge(spread).value("layout.etp") == 1
    alone = tree(model={"tensor_model_parallel_size": 4, "num_moe_experts": 64})
    assert import_bridge(alone).value("layout.etp") == 4
    dense = tree(model={"expert_tensor_parallel_size": 4, "num_moe_experts": "null", "moe_router_topk": 2})
    assert import_bridge(dense).value("layout.etp") == 1
    assert import_bridge(dense).value("model.experts_per_token") is None


def test_fields_of_models_and_data_that_say_nothing_of_a_plan_pass():
    text = tree(
        model={"window_attn_rope_factor": 2, "_target_": "x"}, dataset={"enable_in_batch_packing": "true"}
    )
    foreign = import_bridge(text)
    assert not foreign.problems
    assert not foreign.unread


@pytest.mark.parametrize("group", ["model", "comm_overlap"])
@pytest.mark.parametrize("value", ["true", "false"])
def test_whether_exchanges_run_beside_compute(group, value):
    foreign = import_bridge(tree(**{group: {"overlap_moe_expert_parallel_comm": value}}))
    assert foreign.value("stack.overlap_expert_exchange") is (value == "true")


def test_what_a_plan_has_no_word_for_is_unread():
    text = tree(
        model={
            "cpu_offloading": "true",
            "mtp_use_repeated_layer": "true",
            "cuda_graph_impl": "none",
            "cp_comm_type": "a2a",
        },
        comm_overlap={"tp_comm_overlap": "true"},
        optimizer={"optimizer": "dist_muon"},
    )
    foreign = import_bridge(text)
    assert {unread.key for unread in foreign.unread} == {
        *("model.cpu_offloading", "model.mtp_use_repeated_layer"),
        *("comm_overlap.tp_comm_overlap", "optimizer.optimizer"),
    }
    assert all(unread.value and unread.why for unread in foreign.unread)


SAVED = """\
_target_: megatron.bridge.training.config.ConfigContainer
ddp:
  _target_: megatron.bridge.training.config.DistributedDataParallelConfig
  num_distributed_optimizer_instances: 1
  overlap_grad_reduce: true
  overlap_param_gather: true
  use_distributed_optimizer: true
model:
  _target_: megatron.bridge.models.gpt_provider.GPTModelProvider
  activation_func:
    _call_: false
    _target_: torch.nn.functional.silu
  context_parallel_size: 2
  expert_model_parallel_size: 1
  expert_tensor_parallel_size: 4
  ffn_hidden_size: 28672
  hidden_size: 8192
  kv_channels: 128
  moe_router_topk: 2
  num_attention_heads: 64
  num_layers: 80
  num_moe_experts: null
  num_query_groups: 8
  params_dtype:
    _call_: false
    _target_: torch.bfloat16
  pipeline_model_parallel_layout: null
  pipeline_model_parallel_size: 4
  recompute_granularity: null
  seq_length: 8192
  sequence_parallel: true
  tensor_model_parallel_size: 4
  virtual_pipeline_model_parallel_size: 5
optimizer:
  grad_norm_skip_threshold: .inf
  optimizer: adam
  use_distributed_optimizer: true
train:
  global_batch_size: 512
  micro_batch_size: 1
"""
"""Excerpt in the form of a configuration that Bridge 0.6.2 saves; figures of llama3_70b_pretrain_config."""


def test_a_saved_configuration_is_a_plan():
    foreign = import_bridge(SAVED)
    assert not foreign.problems
    assert "llama-3.1-70b" in matching_zoo_models(foreign)
    plan, problems = planned(foreign, "llama-3.1-70b", 64)
    assert not problems
    layout = plan.layout
    assert (layout.tp, layout.pp, layout.cp, layout.dp_shard, layout.etp) == (4, 4, 2, 2, 1)
    assert plan.pipeline.virtual_stages == 5


def planned(foreign, model, devices):
    """The plan of a file on so many devices, and what stands against it."""
    cluster = f"h100-sxm-80gb x {devices}"
    target = Target(model=model, cluster=cluster, stack="megatron-bridge", devices=devices)
    plan, _, problems = assemble(foreign, target, load_model(model).architecture)
    return plan, [problem for problem in problems if problem.severity == "error"]


@pytest.mark.slow
def test_recipes_become_plans_on_as_many_devices_as_they_name():
    """Nearly all hold together; of the others the fields that do not are named."""
    named = [name for name in recipe_names() if re.search(r"_pretrain_\d+gpu_", name)]
    wrong = {}
    for name in named:
        foreign = import_bridge(f"run_recipe.py --recipe {name}")
        own = [problem for problem in foreign.problems if problem.severity == "error"]
        plan, problems = planned(foreign, foreign.value("model"), int(re.search(r"_(\d+)gpu_", name)[1]))
        assert bool(plan) == (not problems)
        if own or problems:
            wrong[name] = {problem.field for problem in (*own, *problems)}
    assert len(named) > 250
    assert (
        set(wrong)
        == {
            "deepseek_v3_pretrain_256gpu_gb200_fp8mx_partial_cg_dev_config",  # a layout for half its virtual stages
            "deepseek_v3_pretrain_256gpu_gb300_fp8mx_partial_cg_dev_config",
            "glm45_355b_pretrain_128gpu_h100_bf16_config",  # 92 layers over 8 pipeline ranks
            "glm45_air_106b_pretrain_32gpu_h100_bf16_config",  # 46 layers over 4
        }
    )
    assert all(field.startswith("model.") for fields in wrong.values() for field in fields)


def test_a_recipe_that_runs_the_first_layers_again_is_a_plan_with_ranges():
    foreign = import_bridge("run_recipe.py --recipe llama3_8b_pretrain_8gpu_h100_fp8cs_config")
    assert (foreign.value("recompute"), foreign.value("recomputed_first")) == ("full", 5)
    plan, problems = planned(foreign, foreign.value("model"), 8)
    assert not problems
    assert {key: rule.recompute for key, rule in plan.layers.items()} == {
        "embed": "none",
        "0..4": "full",
        "5..31": "none",
        "head": "none",
    }


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("first", range(4))
def test_every_row_of_the_table_is_read_without_a_word_about_its_name(first):
    for name in list(recipe_names())[first::4]:
        foreign = import_bridge(f"run.py {name}")
        assert foreign.value("model") == model_of(name).model
        assert {"layout.tp", "layout.pp", "workload.global_batch", "workload.precision"} <= set(foreign.facts)
        assert not [problem for problem in foreign.problems if problem.field == "recipe"]
