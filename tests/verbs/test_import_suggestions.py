"""Suggestions for other frameworks' files: with the number in the file, the problem is gone and no other has come."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.plans.resolve import resolve_with
from meshwright.verbs.import_ import ImportRequest, import_text

SCRIPT = "pretrain_gpt.py --seq-length 4096 --bf16 --use-distributed-optimizer --sequence-parallel "
OPTIONS = {
    "pp": "--pipeline-model-parallel-size",
    "tp": "--tensor-model-parallel-size",
    "cp": "--context-parallel-size",
    "ep": "--expert-model-parallel-size",
    "micro": "--micro-batch-size",
    "batch": "--global-batch-size",
}
SUGGESTION = re.compile(r"(?:--[a-z-]+ [0-9]+(?:, )?)+")
degree = st.sampled_from((1, 2, 3, 4, 5, 7, 8, 12))


def imported(text, model, devices):
    return import_text(text, ImportRequest(model=model, on=f"h100-sxm-80gb x {devices}"))


def broken(text, question):
    """Return the fields of the errors of a script, and of those that its plan would have without them."""
    changed_file = imported(text, *question).changed_file
    found = changed_file.judge(changed_file.draft)
    return {problem.field for _, problem in found if problem.severity == "error"}


def errors(text, model, devices):
    """Return the errors that a script is told, or its plan where it has one."""
    found = imported(text, model, devices)
    wrong = [problem for problem in found.problems if problem.severity == "error"]
    if found.plan is None:
        return wrong
    try:
        resolve_with(found.plan, found.model, found.cluster, found.stack, stack_binds=True)
    except InputError as error:
        return [*wrong, *error.problems]
    return wrong


DRAWN = (
    st.fixed_dictionaries(dict.fromkeys(("pp", "tp", "cp", "ep", "micro"), degree)),
    st.integers(1, 200),
    st.sampled_from((("llama-3.1-70b", 64), ("qwen3-30b-a3b", 48))),
)


def assert_suggested_numbers_work(degrees, batch, question):
    text = SCRIPT + " ".join(f"{OPTIONS[name]} {number}" for name, number in degrees.items())
    text += f" {OPTIONS['batch']} {batch} "
    before = broken(text, question)
    for problem in errors(text, *question):
        if problem.field in OPTIONS.values() and SUGGESTION.fullmatch(problem.suggestion):
            mended = text + problem.suggestion.replace(",", "")
            assert problem.field not in {one.field for one in errors(mended, *question)}, (text, str(problem))
            assert broken(mended, question) <= before, (text, str(problem))


@settings(max_examples=3)
@given(*DRAWN)
def test_a_suggested_number_works_in_the_script(degrees, batch, question):
    assert_suggested_numbers_work(degrees, batch, question)


@pytest.mark.slow
@settings(max_examples=300)
@given(*DRAWN)
def test_suggested_numbers_work_in_many_scripts(degrees, batch, question):
    assert_suggested_numbers_work(degrees, batch, question)


@pytest.mark.parametrize(
    ("tp", "suggestion"),
    [
        (8, "--pipeline-model-parallel-size 4"),
        (3, "--pipeline-model-parallel-size 4, --tensor-model-parallel-size 4"),
    ],
)
def test_degrees_that_do_not_divide_the_devices_get_legal_ones(tp, suggestion):
    text = f"{SCRIPT} {OPTIONS['pp']} 3 {OPTIONS['tp']} {tp} {OPTIONS['micro']} 1 {OPTIONS['batch']} 64"
    (problem,) = [p for p in errors(text, "llama-3.1-70b", 64) if "does not divide" in p.rule]
    assert problem.suggestion == suggestion
