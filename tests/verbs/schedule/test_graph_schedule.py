"""Lists for a graph with branches: from a search to a file and back, and every fault of such a file."""

import pytest

from meshwright import api
from meshwright.errors import InfeasibleError, InputError
from meshwright.verbs.schedule.solve_chain import ScheduleSearchOptions
from meshwright.verbs.schedule.solve_graph import GraphScheduleRequest

GRAPH = """operators:
  a: {forward_s: 1, input_s: 1, weight_s: 1, kept_bytes: 2e9}
  b: {forward_s: 1, input_s: 1, weight_s: 1}
  c: {forward_s: 1, input_s: 1, weight_s: 1}
edges: [{from: a, to: c}, {from: b, to: c, seconds: 0.5}]
"""
LISTS = """0F0,2F0,2I0,0I0,2W0,0W0
1F0,1I0,1W0
# stage 0: ["a"]
# stage 1: ["b"]
# stage 2: ["c"]
"""
OUT_OF_TURN = """0F0,0F1,2F0,2I0,0I0,2W0,0W0,2F1,2I1,0I1,2W1,0W1
1F1,1F0,1I0,1W0,1I1,1W1
"""


@pytest.fixture
def play(tmp_path):
    """Plays lists for the graph."""

    def played(text=LISTS, **asked):
        (tmp_path / "graph.yaml").write_text(GRAPH, encoding="utf-8")
        (tmp_path / "lists.csv").write_text(text, encoding="utf-8")
        question = GraphScheduleRequest(graph=str(tmp_path / "graph.yaml"), **asked)
        return api.play_graph(str(tmp_path / "lists.csv"), question)

    return played


def test_lists_are_played_as_they_stand(play):
    data = play().to_json()
    assert (data["ranks"], data["micro_batches"], data["step_s"]) == (2, 1, 6.5)
    assert [stage["operators"] for stage in data["stages"]] == [["a"], ["b"], ["c"]]
    assert data["lower_bound_s"] <= data["step_s"]
    assert data["peak_bytes"] == [2e9, 0]
    whole = LISTS.replace("1I0,1W0", "1B0")
    assert play(whole).to_json()["step_s"] == 6.5


def test_what_was_searched_is_played_alike(play, tmp_path):
    play()
    asked = GraphScheduleRequest(graph=str(tmp_path / "graph.yaml"), ranks=2, micro_batches=3)
    found = api.solve_graph(asked, ScheduleSearchOptions(time_budget=0.5, method="local"))
    again = play(found.csv())
    assert again.csv() == found.csv()
    assert again.svg() == found.svg()
    searched, played = found.to_json(), again.to_json()
    for key in (
        "step_s",
        "busy",
        "peak_bytes",
        "messages",
        "stages",
        "actions",
        "start_s",
        "end_s",
        "held_bytes",
    ):
        assert played[key] == searched[key]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace('"c"', '"d"'), "'d': is no operator of the graph"),
        (lambda text: text.replace('["c"]', '["c", "b"]'), "'b': is in 2 stages"),
        (lambda text: text.replace("# stage 2", "# stage 3"), "does not say the operators of each stage"),
        (lambda text: text[: text.index("#")], "does not say the operators of each stage"),
        (
            lambda text: text.replace('"a"', "x").replace('"c"', '"a"').replace("x", '"c"'),
            "one before what it needs",
        ),
        (lambda text: text.replace("1W0", "1W1"), "'0F1': is missing"),
        (lambda text: text.replace("1I0,", ""), "'1I0': is missing"),
        (lambda text: text.replace("2F0", "3F0"), "'3F0': is no pass"),
        (lambda text: text.replace("0F0,2F0", "2F0,0F0"), "stands at 0"),
        (
            lambda text: OUT_OF_TURN + text[text.index("#") :],
            "'1F1': comes where micro-batch 0 of this stage",
        ),
    ],
)
def test_faults_are_named(play, change, message):
    with pytest.raises(InputError) as caught:
        play(change(LISTS))
    assert message in str(caught.value)


def test_numbers_that_differ_and_memory_that_is_short_are_named(play):
    with pytest.raises(InputError, match="the file has 2"):
        play(ranks=3)
    with pytest.raises(InfeasibleError, match="The lists hold more than"):
        play(memory_gib=1.0)
