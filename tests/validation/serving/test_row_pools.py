"""Formats, limits and loads of a row where its table says nothing."""

import numpy as np
import pytest
from serving_table_rows import WITH_EXPERTS, read, row

from meshwright.plans.serving.number_formats import NumberFormats
from meshwright.stack.serving.serving_stack import load_serving_stack
from meshwright.validation.serving.row_pools import (
    AlikeRuns,
    pool_arrays,
    run_formats,
    run_load,
    run_problems,
)


@pytest.fixture
def inputs(tmp_path):
    def of(**changes):
        (one,) = read(tmp_path / "serving.csv", row(**changes))
        return one.inputs

    return of


@pytest.mark.parametrize(
    ("changes", "weights", "kv"),
    [
        ({}, "fp8", None),
        ({"engine": "TensorRT-LLM 1.0"}, "fp8", "fp8"),
        ({"engine": "TensorRT-LLM 1.0", "weight_precision": "fp16"}, "fp16", None),
        ({"engine": "TensorRT-LLM 1.0", "kv_precision": "bf16"}, "fp8", "bf16"),
        ({"engine": "TensorRT-LLM 1.0", "model": "deepseek-v3", "weight_precision": "nvfp4"}, "fp4", "fp8"),
        ({"engine": "TensorRT-LLM 1.0", "model": "gpt-oss-120b", "weight_precision": "fp4"}, None, None),
        ({"model": "gpt-oss-120b", "weight_precision": "bf16"}, None, None),
        ({"kv_precision": "fp8", "weight_precision": ""}, None, "fp8"),
    ],
)
def test_formats(inputs, changes, weights, kv):
    assert run_formats(inputs(**changes)) == NumberFormats(weights=weights, kv=kv)


def test_limits_are_the_engines_for_each_rank_of_attention(inputs):
    run, engine = inputs(**WITH_EXPERTS), load_serving_stack("vllm")
    pool = pool_arrays(AlikeRuns.of(run), 0, [run], engine)
    assert pool.max_sequences.tolist() == [4 * engine.max_sequences]
    assert (pool.chunk_tokens, pool.kv_fraction) == (engine.chunk_tokens, engine.kv_fraction)


def test_a_closed_loop_goes_before_a_rate_and_no_load_is_the_largest_batch(inputs):
    closed = inputs(concurrency=16, request_rate="inf")
    unlimited, arriving = inputs(concurrency="", request_rate="inf"), inputs(concurrency="", request_rate=3)
    load = run_load([closed, unlimited, arriving])
    assert np.array_equal(load.concurrency, [16, np.nan, np.nan], equal_nan=True)
    assert np.array_equal(load.rate_per_s, [np.nan, np.inf, 3], equal_nan=True)


def test_copies_of_experts_fill_ranks_of_attention_that_do_not_divide_them(inputs):
    sides = " workers x tp48 pp1 adp1 moetp48 ep1 bs"
    wide = inputs(model="deepseek-v3", gpus=96, tp="", disagg=f"{sides}|{sides}", gpu="GB200")
    assert not [*run_problems(wide)]
    assert [*run_problems(inputs(tp=3, gpus=3))]


def test_requests_beyond_learned_positions_are_refused_and_beyond_rotary_ones_are_not(inputs):
    (problem,) = run_problems(inputs(model="gpt3-175b", isl="2000", osl="100", tp="8", gpus="8"))
    assert (problem.field, problem.value) == ("isl", 2100)
    assert "input_tokens + output_tokens = 2000 + 100 > max_positions 2048" in problem.rule
    assert not list(run_problems(inputs(isl="200000", osl="100")))
