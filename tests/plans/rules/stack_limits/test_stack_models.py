from dataclasses import replace

import pytest

from meshwright.frameworks.importing.stack_from_facts import stack_text
from meshwright.model.load import load_model
from meshwright.plans.rules.stack_limits.stack_models import missing_model, rows_of
from meshwright.stack.load import load_stack, parse_stack, stack_names
from meshwright.stack.stack_model import SHAPE

TORCHTITAN = load_stack("torchtitan")
BRIDGE = load_stack("megatron-bridge")


@pytest.mark.parametrize(
    ("name", "precision", "config"),
    [
        ("llama-3.1-8b", "bf16", "llama3_8b"),
        ("llama-3.1-8b", "mxfp8", "llama3_8b_mxfp8"),
        ("llama-3.1-70b", "bf16", "llama3_70b"),
        ("llama-3.1-405b", "fp8", "llama3_405b"),
        ("qwen3-32b", "bf16", "qwen3_32b"),
        ("qwen3-30b-a3b", "bf16", "qwen3_30b_a3b"),
        ("deepseek-v3", "bf16", "deepseek_v3_671b"),
        ("deepseek-v3", "fp8", "deepseek_v3_671b_float8"),
        ("gpt-oss-20b", "bf16", "gpt_oss_20b"),
        ("gpt-oss-120b", "bf16", "gpt_oss_120b"),
    ],
)
def test_a_model_is_found_by_its_shape(name, precision, config):
    rows = rows_of(load_model(name).architecture, TORCHTITAN)
    (found,) = [row for row in rows if precision in row.precisions]
    assert (found.config, found.config.startswith(found.module)) == (config, True)


def test_one_other_width_is_another_model():
    changed = replace(load_model("llama-3.1-8b").architecture, intermediate=14337)
    (problem,) = missing_model(changed, TORCHTITAN)
    assert problem.field == "stack"
    assert "llama3_8b" in problem.rule
    assert "megatron-core" in problem.suggestion
    assert "megatron-bridge" not in problem.suggestion


def test_no_shape_stands_twice_in_one_precision():
    rows = TORCHTITAN.models or ()
    keys = [
        (row.families, tuple(getattr(row, name) for name in SHAPE), precision)
        for row in rows
        for precision in row.precisions
    ]
    assert len(keys) == len(set(keys)) > 20


def test_a_model_of_the_catalogue_is_found_by_its_architecture_whatever_its_name():
    arch = load_model("qwen3-32b").architecture
    (row,) = rows_of(replace(arch, name="mine"), BRIDGE)
    assert row.config == "qwen3_32b_pretrain_config"
    assert rows_of(replace(arch, name="mine", layers=63, windows=arch.windows[:63]), BRIDGE) == ()


def test_a_name_of_the_catalogue_with_other_sizes_is_another_model():
    arch = load_model("qwen3-32b").architecture
    assert rows_of(replace(arch, intermediate=25601), BRIDGE) == ()


def test_megatron_lacks_what_its_one_model_class_has_no_option_for():
    stack = load_stack("megatron-core")
    assert missing_model(load_model("llama-3.1-8b").architecture, stack) == []
    (problem,) = missing_model(load_model("gemma-2-9b").architecture, stack)
    assert "norms per layer 4" in problem.rule
    assert problem.suggestion.startswith("stack: ")
    assert "megatron-bridge" in problem.suggestion


def test_a_stack_file_of_ones_own_lists_further_models():
    text = "name: torchtitan\nrelease: mine\nsource: us\nmodels: [{config: ours, model: gemma-2-9b, module: gemma}]\n"
    assert missing_model(load_model("gemma-2-9b").architecture, parse_stack(text)) == []
    assert missing_model(load_model("llama-3.1-8b").architecture, parse_stack(text))


@pytest.mark.parametrize("name", stack_names())
def test_a_stack_that_is_written_down_is_read_back(name):
    stack = load_stack(name)
    assert parse_stack(stack_text(stack)) == stack
