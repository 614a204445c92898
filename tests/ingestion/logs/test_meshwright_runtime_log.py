"""What the first line of our own runs says beside the plan: the model's shape, the precision, another device."""

import json

import pytest
from log_samples import summary_of

from meshwright.errors import InputError
from meshwright.ingestion.logs.run_row import run_row
from meshwright.model.load import load_model
from meshwright.plans.files.plan_file import parse_plan
from meshwright.validation.model_to_columns import model_columns

PLAN = """plan: 1
model: /nowhere/ours
cluster: h100-sxm-80gb x 2
workload: {seq_len: 128, global_batch: 8}
stack: meshwright
layout: {dp_shard: 2}
sharding: zero1
"""
MODEL = model_columns(load_model("llama-3.2-1b").architecture)


def log(**start):
    """A run's metrics; ``start`` is said in its first line."""
    first = {"meshwright": "0.2.0", "plan": parse_plan(PLAN).to_data(), "model": MODEL, **start}
    steps = ({"step": step, "step_time_s": 0.25} for step in range(12))
    return "".join(json.dumps(line) + "\n" for line in (first, *steps))


def test_a_model_that_nobody_knows_has_its_shape_in_the_first_line():
    row = run_row(summary_of(log()), {})
    assert not row.problems
    assert {name: row.cells[name] for name in MODEL} == {n: str(v).lower() for n, v in MODEL.items()}
    assert row.origins["layers"] == ("log", "model: layers 16")


def test_without_the_shape_every_column_that_is_missing_is_named():
    with pytest.raises(InputError) as caught:
        run_row(summary_of(log(model=None)), {})
    assert {"layers", "hidden", "heads"} <= {problem.field for problem in caught.value.problems}


def test_the_precision_is_that_of_the_run_and_not_of_its_plan():
    assert run_row(summary_of(log(precision="fp32")), {}).cells["precision"] == "fp32"
    assert run_row(summary_of(log(precision="bf16")), {}).cells["precision"] == "bf16"


def test_a_run_on_another_device_than_the_plan_s_is_a_warning():
    (problem,) = run_row(summary_of(log(other_device="cpu")), {}).problems
    assert problem.field == "notes"
    assert "ran on cpu" in problem.value
    assert not run_row(summary_of(log(other_device=None)), {}).problems


def test_a_device_of_one_s_own_is_written_only_where_it_is_named_as_such():
    summary = summary_of(log().replace("h100-sxm-80gb x 2", "/nowhere/ours.yaml"))
    machine = {"device": "our-chip", "devices": 2}
    for own in (None, "our-other-chip"):
        with pytest.raises(InputError, match="no device of this name"):
            run_row(summary, machine, own)
    assert run_row(summary, machine, "our-chip").cells["device"] == "our-chip"


@pytest.mark.parametrize(
    "model",
    [
        [],
        "llama",
        7,
        {"layers": -1, "hidden": "many", "run_id": "mine", "ffn": ["swiglu"], "vocab": 10**30},
        {"layers": {"layers": 3}, "tied_embeddings": None, "heads": True},
    ],
)
def test_a_shape_that_can_not_be_fills_no_column(model):
    row = run_row(summary_of(log(model=model)), MODEL)
    assert {name: row.cells[name] for name in MODEL} == {n: str(v).lower() for n, v in MODEL.items()}
    assert all(problem.severity == "warning" for problem in row.problems)


def test_endless_nesting_in_a_first_line_is_no_start():
    deep = log().replace('"model": {', '"model": ' + "[" * 100_000 + "{", 1)
    with pytest.raises(InputError):
        run_row(summary_of(deep), {})
