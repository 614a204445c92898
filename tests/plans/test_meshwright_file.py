from importlib.resources import files

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import long_plan, long_plans, short_plan, short_plans

from meshwright.cluster.cluster_to_file import dump_cluster
from meshwright.cluster.load import load_cluster, parse_cluster
from meshwright.errors import InputError
from meshwright.frameworks.importing.stack_from_facts import stack_text
from meshwright.plans.files.meshwright_file import END, WRITTEN
from meshwright.plans.files.plan_file import PLAN, dump_plan, load_plan, parse_plan
from meshwright.stack.load import load_stack, parse_stack

HAND_WRITTEN = "plan: 1\nmodel: m\ncluster: c\nworkload: {seq_len: 8, global_batch: 8}\nlayout: {tp: 2}\n"
KINDS = {
    "short plan": (dump_plan(short_plan(), {"layout.tp": "fits · 3 GiB …"}), parse_plan),
    "long plan": (dump_plan(long_plan(), {"layers": "all"}), parse_plan),
    "cluster": (dump_cluster(load_cluster("h800 x 16")), parse_cluster),
    "stack": (stack_text(load_stack("torchtitan")), parse_stack),
}


def refusal(read, text):
    with pytest.raises(InputError) as caught:
        read(text)
    return caught.value.problems


@pytest.mark.parametrize("cuts", [40, pytest.param(10**4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_written_file_is_read_whole_and_refused_wherever_it_was_cut_off(kind, cuts):
    text, read = KINDS[kind]
    assert text.startswith(f"{WRITTEN}\n")
    assert text.endswith(f"\n{END}\n")
    read(text)
    read(text.rstrip("\n"))
    read(text.replace("\n", "\r\n"))
    for length in range(0, len(text) - len(END) - 1, max(7, len(text) // cuts)):
        assert refusal(read, text[:length])


@settings(max_examples=12, deadline=None)
@given(plan=short_plans() | long_plans(), share=st.floats(0, 1, exclude_max=True))
def test_every_plan_cut_off_at_any_byte_is_refused(tmp_path_factory, plan, share):
    raw = dump_plan(plan).encode()
    whole = len(raw) - len(f"{END}\n")
    path = tmp_path_factory.mktemp("cut") / "plan.yaml"
    for length in (0, len(WRITTEN), int(share * whole), whole - 1, whole, whole + 2):
        path.write_bytes(raw[:length])
        problems = refusal(load_plan, path)
        assert all(problem.rule and problem.to_json() for problem in problems)
    path.write_bytes(raw)
    assert load_plan(path) == plan


def test_the_refusal_names_the_last_key_and_what_a_written_plan_always_has():
    text = dump_plan(short_plan())
    (problem,) = refusal(parse_plan, text[: text.index("micro_batch: ") + 12])
    assert "cut off: the last key read is `pipeline.micro_batch`" in problem.rule
    for key in PLAN.always:
        assert key in problem.rule
    (problem,) = refusal(parse_plan, text[: text.index("micro_batch") + 5])
    assert "the last key read is `pipeline.schedule`;" in problem.rule
    (problem,) = refusal(parse_plan, WRITTEN)
    assert "no key was read" in problem.rule


@pytest.mark.parametrize("plan", [short_plan(), long_plan()])
def test_a_written_plan_has_what_the_refusal_says(plan):
    data = plan.to_data()
    assert {key.split()[0] for key in PLAN.always} - {"layout"} <= {*data}
    assert "layout" in data or "layouts" in data


def test_files_of_the_package_and_of_people_keep_their_defaults():
    assert parse_plan(HAND_WRITTEN).sharding == "none"
    assert parse_plan(HAND_WRITTEN + f"{END}\n").layout.tp == 2
    for entry in files("meshwright.stack").joinpath("files").iterdir():
        assert not entry.read_text(encoding="utf-8").startswith(WRITTEN)


def test_every_key_without_a_value_is_refused_beside_the_other_problems():
    text = HAND_WRITTEN.replace("tp: 2", "tp: , pp: null, ep: two") + "gather: ~\noffload:\nmodle: 3\n"
    rules = {problem.field: problem.rule for problem in refusal(parse_plan, text)}
    assert rules == {
        "layout.tp": "has no value",
        "layout.pp": "has no value",
        "gather": "has no value",
        "offload": "has no value",
        "layout.ep": "must be a whole number",
        "modle": "unknown key",
    }


@pytest.mark.parametrize(
    ("key", "fields"),
    [("plan: 1", {"plan"}), ("layout: {tp: 2}", {"layout"}), ("cluster: c", {"cluster"})],
)
def test_a_required_key_without_a_value_is_one_problem(key, fields):
    text = HAND_WRITTEN.replace(key, f"{key.split(':')[0]}:")
    assert {problem.field for problem in refusal(parse_plan, text)} == fields


def test_empty_lists_and_mappings_are_values():
    plan = parse_plan(HAND_WRITTEN.replace("{tp: 2}", "{}") + "pipeline: {}\n")
    assert (plan.layout.tp, plan.pipeline.micro_batch) == (1, 1)
    assert "must not be empty" in str(refusal(parse_plan, HAND_WRITTEN + "recompute: []\n"))
