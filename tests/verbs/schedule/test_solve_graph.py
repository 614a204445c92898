"""``schedule auto --graph`` as a function: files, everything that is wrong with them at once, and the public form."""

import json
import xml.etree.ElementTree as ElementTree

import pytest

from meshwright import api
from meshwright.errors import InfeasibleError, InputError
from meshwright.schedules.custom.csv_file import lists_from_csv
from meshwright.verbs.schedule.graph_file import branches_of_file
from meshwright.verbs.schedule.solve_chain import ScheduleSearchOptions
from meshwright.verbs.schedule.solve_graph import GraphScheduleRequest

SOON = ScheduleSearchOptions(time_budget=0.5, method="local")
TWO = {
    "link_bytes_per_s": 1000,
    "operators": {
        "image": {"forward_s": 0.1, "input_s": 0.2, "weight_s": 0.1, "kept_bytes": 7, "state_bytes": 100},
        "text": {
            "forward_s": 0.1,
            "input_s": 0.2,
            "weight_s": 0.1,
            "kept_bytes": 8,
            "kept_for_weight_bytes": 1,
        },
        "both": {"forward_s": 0.3, "input_s": 0.3, "weight_s": 0.3},
    },
    "edges": [{"from": "image", "to": "both", "bytes": 50}, {"from": "text", "to": "both", "seconds": 0.02}],
}


@pytest.fixture
def file(tmp_path):
    def write(data):
        path = tmp_path / "graph.yaml"
        path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
        return str(path)

    return write


def refused(path, **asked):
    with pytest.raises(InputError) as error:
        api.solve_graph(GraphScheduleRequest(graph=path, **({"ranks": 2, "micro_batches": 2} | asked)), SOON)
    assert all(problem.rule and problem.suggestion for problem in error.value.problems)
    return {problem.field: problem.rule for problem in error.value.problems}


def test_a_file_says_times_bytes_and_edges(file):
    found = branches_of_file(file(TWO))
    costs = dict(zip(found.names, found.graph.costs, strict=True))
    assert found.ticks_per_s == 100
    assert costs["image"] == (10, 20, 10, 7, 4, 100)
    assert costs["text"] == (10, 20, 10, 8, 1, 0)
    ends = {(found.names[a], found.names[b]): ticks for (a, b), ticks in found.graph.edges.items()}
    assert ends == {("image", "both"): 5, ("text", "both"): 2}


def test_the_public_form_is_consistent(file):
    solved = api.solve_graph(
        GraphScheduleRequest(graph=file(TWO), ranks=2, micro_batches=3, memory_gib=1), SOON
    )
    data = solved.to_json()
    json.dumps(data, allow_nan=False)
    assert data["lower_bound_s"] <= data["step_s"] <= data["chain_step_s"]
    assert data["gain"] == pytest.approx(1 - data["step_s"] / data["chain_step_s"])
    assert data["step_s"] == max(max(row) for row in data["end_s"] if row)
    assert sorted(name for stage in data["stages"] for name in stage["operators"]) == [
        "both",
        "image",
        "text",
    ]
    assert [max(row) for row in data["held_bytes"]] == data["peak_bytes"]
    work = sum(data["busy"]) * data["step_s"]
    assert work == pytest.approx(3 * (0.4 + 0.4 + 0.9))
    assert [[str(a) for a in row] for row in lists_from_csv(solved.csv())] == data["actions"]
    assert ElementTree.fromstring(solved.svg()).tag.endswith("svg")


def test_everything_wrong_with_a_file_comes_at_once(file):
    found = refused(
        file(
            {
                "nodes": {},
                "operators": {
                    "a": {"forward_s": -1, "input_s": 0.1, "weight_s": 0.1},
                    "b": {"forward_s": 0.1, "input_s": 0.1, "kept_bytes": 1.5},
                    "c": 5,
                    "d": {
                        "forward_s": 0.1,
                        "input_s": 0.1,
                        "weight_s": 0,
                        "kept_bytes": 2,
                        "kept_for_weight_bytes": 3,
                    },
                },
                "edges": [
                    {"from": "a", "to": "bb"},
                    {"from": "a", "to": "b", "bytes": 5},
                    {"from": "a", "to": "b", "by": 5},
                    {"from": "a", "to": "c", "bytes": 5, "seconds": 1},
                    7,
                ],
            }
        ),
        micro_batches=0,
        memory_gib=-1,
    )
    assert found == {
        "micro-batches": "must be from 1 to 131072",
        "memory": "must be above 0 and at most 1048576 GiB",
        "graph.nodes": "unknown key",
        "graph.operators.a.forward_s": "must be a number from 0 to 1e+06",
        "graph.operators.b.weight_s": "is needed",
        "graph.operators.b.kept_bytes": "must be whole bytes",
        "graph.operators.c": "is no mapping",
        "graph.operators.d.kept_for_weight_bytes": "is a part of kept_bytes = 2",
        "graph.edges.0.to": "is no operator",
        "graph.edges.1.bytes": "bytes need the speed of a link above 0",
        "graph.edges.2.by": "unknown key",
        "graph.edges.2": "is there already",
        "graph.edges.3.seconds": "says the same as bytes",
        "graph.edges.3.bytes": "bytes need the speed of a link above 0",
        "graph.edges.4": "is no mapping",
        "graph.edges": "nothing connects 2 parts of the graph, those of a, d",
    }


def test_a_circle_is_named(file):
    each = {"forward_s": 1, "input_s": 1, "weight_s": 1}
    edges = [{"from": a, "to": b} for a, b in (("a", "b"), ("b", "c"), ("c", "b"))]
    path = file({"operators": dict.fromkeys("abc", each), "edges": edges})
    with pytest.raises(InputError) as error:
        branches_of_file(path)
    (problem,) = error.value.problems
    assert problem.rule == "the operators need each other in a circle"
    assert problem.value in ("b → c → b", "c → b → c")


@pytest.mark.parametrize(
    ("data", "field", "rule"),
    [
        ("7", "graph", "must be a mapping of keys to values"),
        ("{}", "graph.operators", "is no mapping of names to operators"),
        (
            {"operators": {"a": dict.fromkeys(("forward_s", "input_s", "weight_s"), 0)}},
            "graph.operators",
            "no pass",
        ),
        (TWO | {"edges": "all"}, "graph.edges", "is no list"),
        (TWO | {"edges": []}, "graph.edges", "nothing connects 3 parts"),
    ],
)
def test_files_that_are_no_graphs(file, data, field, rule):
    assert refused(file(data), ranks=1)[field].startswith(rule)


def test_more_ranks_than_operators_and_too_many_passes(file):
    assert refused(file(TWO), ranks=4) == {"ranks": "4 ranks > 3 operators"}
    found = refused(file(TWO), micro_batches=10_000)
    assert found["micro-batches"].startswith("3·operators·micro-batches = 90,000 passes > 60,000")


def test_nothing_fits_into_too_little_memory(file):
    wide = TWO["operators"] | {"both": TWO["operators"]["both"] | {"state_bytes": 2 * 2**30}}
    asked = GraphScheduleRequest(
        graph=file(TWO | {"operators": wide}), ranks=2, micro_batches=1, memory_gib=1
    )
    with pytest.raises(InfeasibleError):
        api.solve_graph(asked, SOON)
