"""What the types of files complain about: always with something to write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_cases import long_plan, short_plan
from serving_cases import TEXTS, serving

from meshwright.cluster.file_schema import ClusterFile
from meshwright.errors import InputError
from meshwright.plans.files.strict_types import Strict
from meshwright.plans.files.validation_messages import EXAMPLES, validated
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.serving.serving_file import ServingFile

CLUSTER = {
    "name": "two",
    "pools": (
        {"name": "fast", "count": 256, "device": "h100-sxm-80gb", "usd_per_device_hour": {"value": 4.1}},
        {"name": "slow", "count": 64, "device": {"like": "a100-sxm-80gb", "peak_tflops": {"bf16": 300.0}}},
    ),
    "tiers": ({"name": "pod", "devices": 128, "oversubscription": 4.0},),
    "calibration": {"nic_efficiency": 0.8},
}
ENTRIES = (
    {"state": "parameter", "over": "dp_replicate", "every": {"qsr": {"base": 4, "alpha": 0.01}}},
    {"state": "parameter", "over": "dp_shard", "fragments": {"count": 2}, "outer": {"adam": {"lr": 1.0}}},
    {"state": "gradient", "over": "dp_shard", "compress": {"dct": {"chunk": 8, "keep": 2}}},
    {"state": "gradient", "over": "dp_shard", "compress": {"low_rank": {"budget": 2}, "layers": "0..3"}},
    {"state": "expert_token", "over": "ep", "compress": {"lsh": {}, "sketch": {"width": 0.1}}},
)
GOOD = [
    (ShortPlan, short_plan().model_dump()),
    (ShortPlan, short_plan(synchronise=ENTRIES).model_dump(by_alias=True, exclude_none=True)),
    (LongPlan, long_plan().model_dump(by_alias=True)),
    (ClusterFile, CLUSTER),
    *((ServingFile, serving(text).model_dump(by_alias=True, exclude_none=True)) for text in TEXTS),
]
STRANGE = st.sampled_from(
    [0, -1, 2**70, 1.5, float("inf"), "", "two words", "x" * 3000, None, (), (1,), {}, {"x": 1}, True]
)


def places(data, path=()):
    """Every path inside, down to the last value."""
    inside = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, tuple) else ()
    for key, value in inside:
        yield (*path, key)
        yield from places(value, (*path, key))


def changed(data, path, value):
    """A copy with another value at a path, or without the key where the value is the Ellipsis."""
    head, *rest = path
    inner = changed(data[head], rest, value) if rest else value
    if isinstance(data, tuple):
        return tuple(
            inner if at == head else item for at, item in enumerate(data) if (at, inner) != (head, ...)
        )
    return {key: inner if key == head else item for key, item in data.items() if (key, inner) != (head, ...)}


@pytest.mark.parametrize(("kind", "data"), GOOD)
@given(drawn=st.data())
def test_whatever_stands_in_one_place_is_accepted_or_told_how_to_write(kind, data, drawn):
    validated(kind, data)
    path = drawn.draw(st.sampled_from(list(places(data))))
    told = problems_of(kind, changed(data, path, drawn.draw(STRANGE | st.just(...))))
    assert all(problem.suggestion.strip() for problem in told)


def problems_of(kind, data):
    """What is said of the data; nothing where it is accepted."""
    try:
        validated(kind, data)
    except InputError as error:
        return error.problems
    return ()


def required_keys(kind):
    """Keys that have no default, of this type and of all types in it."""
    for name, field in kind.model_fields.items():
        if field.is_required():
            yield field.alias or name
    for inner in kind.__subclasses__():
        yield from required_keys(inner)


def test_every_key_that_must_be_there_has_a_line_to_copy():
    needed = {key for kind, _ in GOOD for key in required_keys(kind)}
    needed |= {
        key
        for kind in Strict.__subclasses__()
        if kind.__module__.startswith(("meshwright.plans", "meshwright.cluster"))
        for key in required_keys(kind)
    }
    assert needed <= EXAMPLES.keys()
    assert all(line.startswith(f"{key}: ") for key, line in EXAMPLES.items())


ONE_POOL = ({"device": "h100-sxm-80gb", "count": 64},)
TIER = {"name": "pod", "devises": 8, "oversubscription": 1}
PLAN = short_plan().model_dump(exclude={"model"})


@pytest.mark.parametrize(
    ("kind", "data", "wrong"),
    [
        (ClusterFile, {"pools": ({"device": "a10", "cout": 64},)}, {"pools.0.cout"}),
        (ClusterFile, {"pools": ({"device": {"memory_gb": 9}, "count": 1},)}, {"pools.0.device.memory_gb"}),
        (ClusterFile, {"pool": ONE_POOL, "tiers": (TIER,)}, {"pool", "tiers.0.devises"}),
        (ClusterFile, {"pools": ()}, {"pools"}),
        (ClusterFile, {"pools": ({"device": "a10", "number": 64},)}, {"pools.0.count", "pools.0.number"}),
        (ShortPlan, PLAN | {"modle": "llama-3.1-8b"}, {"modle"}),
        (ShortPlan, PLAN | {"mod": "llama-3.1-8b", "modle": "x"}, {"mod", "modle"}),
    ],
)
def test_an_error_that_follows_from_another_one_is_left_out(kind, data, wrong):
    fields = [problem.field for problem in problems_of(kind, data)]
    assert sorted(fields) == sorted(wrong)


def test_a_number_in_units_of_1024_is_answered_with_the_number():
    workload = PLAN["workload"] | {"seq_len": "8k"}
    (problem,) = problems_of(ShortPlan, PLAN | {"model": "a", "workload": workload})
    assert (problem.field, problem.suggestion) == ("workload.seq_len", "write 8192")


def test_a_required_key_with_a_default_brings_its_example():
    with pytest.raises(InputError) as caught:
        validated(ShortPlan, PLAN | {"model": "a"}, required={"gap": "gap: 1"})
    (problem,) = caught.value.problems
    assert (problem.field, problem.rule, problem.suggestion) == ("gap", "is required", "add `gap: 1`")
