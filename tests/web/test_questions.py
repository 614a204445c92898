"""Questions of a browser: nothing that names a file or a hub gets through, everything wrong is said at once."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.web.questions import QUESTIONS, read_question

PLAN = {"model": "llama-3.2-1b", "on": "h100-sxm-80gb x 2", "seq_len": 2048, "global_batch": 4}
FILE = {
    "plan": 1,
    "model": "llama-3.2-1b",
    "cluster": "h100-sxm-80gb x 2",
    "workload": {"seq_len": 2048, "global_batch": 4},
    "stack": "megatron-core",
    "layout": {"dp_shard": 2},
}


def read(verb, question):
    return read_question(verb, json.dumps(question).encode())


def fields(verb, question):
    with pytest.raises(InputError) as error:
        read(verb, question)
    return [problem.field for problem in error.value.problems]


def test_names_of_the_catalogue_and_texts_are_taken():
    assert read("plan", PLAN).model == "llama-3.2-1b"
    assert read("plan", PLAN | {"model": "meta-llama/Llama-3.2-1B"}).model == "llama-3.2-1b"
    config = read("plan", PLAN | {"model": ' {\n "model_type": "llama"}'}).model
    assert config == '{"model_type": "llama"}'
    cluster = read("plan", PLAN | {"on": "name: mine\npools: [{device: h100-sxm-80gb, count: 8}]\n"}).on
    assert json.loads(cluster)["pools"] == [{"device": "h100-sxm-80gb", "count": 8}]
    assert read("predict", {"plan": json.dumps(FILE)}).plan == read("predict", {"plan": FILE}).plan


PATHS = ["/etc/passwd", "../x.json", "some-org/some-model", "model.json", "~/model", "a\\b"]


@pytest.mark.parametrize("path", PATHS)
def test_paths_and_hub_ids_are_refused(path):
    assert fields("plan", PLAN | {"model": path}) == ["model"]
    assert fields("predict", {"plan": FILE | {"model": path}}) == ["plan.model"]
    assert fields("predict", {"plan": FILE | {"stack": path}}) == ["plan.stack"]
    if "/" in path or path.endswith(".json"):
        assert fields("plan", PLAN | {"on": path}) == ["on"]
        assert fields("plan", PLAN | {"schedule": path}) == ["schedule"]
        assert fields("plan", PLAN | {"keep": ["tp=2", f"schedule={path}"]}) == ["keep.1"]
        assert fields("predict", {"plan": FILE | {"cluster": path}}) == ["plan.cluster"]


def test_keys_that_name_files_are_refused_wherever_they_are():
    lists = FILE | {"pipeline": {"schedule": {"name": "custom", "file": "lists.csv"}}}
    assert fields("explain", {"plan": lists}) == ["plan.pipeline.schedule.file"]
    order = FILE | {"layout": {"dp_shard": 2, "expert_order": "order.csv"}}
    assert fields("explain", {"plan": FILE, "against": order}) == ["against.layout.expert_order"]
    pairs = FILE | {"workload": {"seq_len": 1, "global_batch": 1, "routing": {"pairs": "pairs.csv"}}}
    assert fields("report", {"plan": FILE, "against": [pairs]}) == ["against.0.workload.routing.pairs"]
    assert fields("predict", {"plan": FILE, "set": ["tp=1", "model=x"]}) == ["set.1"]


def test_all_problems_come_at_once():
    wrong = {"model": "nothing", "on": "/x", "seq_len": 0, "global_batch": "many", "colour": 1}
    assert set(fields("plan", wrong)) == {"seq_len", "global_batch", "colour"}
    assert set(fields("plan", PLAN | {"model": "nothing", "on": "/x"})) == {"model", "on"}
    for body in (b"", b"[]", b"{", b"null", b"\xff", b'{"seq_len": NaN}', b"[" * 100_000):
        with pytest.raises(InputError):
            read_question("plan", body)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(PATHS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@given(
    verb=st.sampled_from(sorted(QUESTIONS)),
    changes=st.dictionaries(
        st.sampled_from(["model", "on", "plan", "set", "keep", "rates", "against", "top", "text", "x"]),
        VALUES,
    ),
)
def test_any_question_is_read_or_refused_with_reasons(verb, changes):
    problems = ()
    try:
        read(verb, (PLAN if verb == "plan" else {"plan": FILE}) | changes)
    except InputError as error:
        problems = error.problems
    assert all(problem.rule for problem in problems)
