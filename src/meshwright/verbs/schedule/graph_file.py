"""Files that describe a model as operators with branches, for ``schedule auto --graph``.

YAML, or JSON, which is YAML too:

    link_bytes_per_s: 50e9
    operators:
      image-0: {forward_s: 0.002, input_s: 0.002, weight_s: 0.002, kept_bytes: 4e8, state_bytes: 2e9}
      text-0: {forward_s: 0.001, input_s: 0.001, weight_s: 0.001}
      both: {forward_s: 0.003, input_s: 0.003, weight_s: 0.003}
    edges:
      - {from: image-0, to: both, bytes: 4e6}
      - {from: text-0, to: both, seconds: 0.0001}

Times and ``kept_bytes`` (what F keeps for I and W) are of one micro-batch, ``state_bytes`` of parameters, gradients and
optimizer. ``kept_for_weight_bytes`` is what I leaves of the former for W, half of it if nothing is said. An edge takes
``seconds`` between ranks, or ``bytes`` over a link of ``link_bytes_per_s``; neither: no time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from graphlib import CycleError, TopologicalSorter

from meshwright.errors import InputError, Problem, nearest
from meshwright.plans.files.meshwright_file import FileKind, read_keys, with_empty_keys
from meshwright.plans.files.yaml_text import read_file
from meshwright.schedules.integer_times import exact, ticks_in_unit
from meshwright.search.operator_graph.graph import Cost, Graph

FORM = "`operators`, each with forward_s, input_s and weight_s, and `edges` with `from` and `to`"
GRAPH = FileKind("graph", prefix="graph", form=FORM)
TOP = ("operators", "edges", "link_bytes_per_s")
PASSES = ("forward_s", "input_s", "weight_s")
BYTES = ("kept_bytes", "kept_for_weight_bytes", "state_bytes")
EDGE = ("from", "to", "seconds", "bytes")
MOST_OPERATORS = 400
MOST_BYTES = 1e15
LONGEST = 1e6
MOST_TICKS = 2**24
"""Of the longest pass or message."""


@dataclass(frozen=True)
class Branches:
    """A graph in ticks, how many of them make a second, and the operators' names."""

    graph: Graph
    ticks_per_s: int
    names: tuple[str, ...]


def branches_of_file(path: str) -> Branches:
    """Read the graph of a file. Raise InputError with every problem."""
    empty: list[Problem] = []
    reader = _Reader(read_keys(read_file(path, "graph", FORM), "graph", GRAPH, empty))
    problems = with_empty_keys(empty, [*reader.problems, *reader.shape_problems()])
    if problems:
        raise InputError(problems)
    return reader.branches()


class _Reader:
    """The content of a graph file, and its problems."""

    def __init__(self, data: Mapping[str, object]) -> None:
        self.problems: list[Problem] = []
        self._known("graph", data, TOP)
        self.link = self._number(data, "link_bytes_per_s", "graph", MOST_BYTES)
        operators, edges = data.get("operators"), data.get("edges", ())
        if not isinstance(operators, dict) or not operators:
            self._wrong("graph.operators", operators, "is no mapping of names to operators", FORM)
            operators = {}
        if len(operators) > MOST_OPERATORS:
            rule = f"more than {MOST_OPERATORS}, too many to search"
            self._wrong("graph.operators", len(operators), rule, "merge operators that belong together")
        if not isinstance(edges, tuple):
            self._wrong("graph.edges", edges, "is no list", "- {from: a, to: b}")
            edges = ()
        self.names = list(operators)
        self.costs = {name: self._operator(name, entry) for name, entry in operators.items()}
        self.edges: dict[tuple[str, str], Fraction] = {}
        for number, entry in enumerate(edges):
            self._edge(f"graph.edges.{number}", entry)

    def _wrong(self, field: str, value: object, rule: str, suggestion: str) -> None:
        self.problems.append(Problem(field, value, rule, suggestion))

    def _known(self, field: str, entry: Mapping[str, object], keys: Sequence[str]) -> None:
        for key in entry:
            if key not in keys:
                self._wrong(f"{field}.{key}", entry[key], "unknown key", nearest(key, keys))

    def _number(self, entry: Mapping[str, object], key: str, field: str, most: float) -> float | None:
        """Return a number from 0; None where there is none."""
        value = entry.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            self._wrong(f"{field}.{key}", value, f"must be a number from 0 to {most:g}", f"{key}: 0")
            return None
        return value

    def _operator(self, name: str, entry: object) -> tuple[list[Fraction], list[int]]:
        """Return times and bytes."""
        field = f"graph.operators.{name}"
        if not isinstance(entry, dict):
            self._wrong(field, entry, "is no mapping", "{forward_s: 0.001, input_s: 0.001, weight_s: 0.001}")
            return [], []
        self._known(field, entry, (*PASSES, *BYTES))
        for key in PASSES:
            if entry.get(key) is None:
                self._wrong(f"{field}.{key}", None, "is needed", f"{key}: 0.001")
        times = [self._number(entry, key, field, LONGEST) or 0 for key in PASSES]
        found = {key: self._number(entry, key, field, MOST_BYTES) for key in BYTES}
        for key, value in found.items():
            if value is not None and value != int(value):
                self._wrong(f"{field}.{key}", value, "must be whole bytes", f"{key}: {round(value)}")
        kept, left, state = (int(found[key] or 0) for key in BYTES)
        if found["kept_for_weight_bytes"] is None:
            left = -(-kept // 2)
        elif left > kept:
            rule = f"is a part of kept_bytes = {kept}"
            self._wrong(f"{field}.kept_for_weight_bytes", left, rule, f"kept_for_weight_bytes: {kept}")
        return [exact(time) for time in times], [kept, left, state]

    def _edge(self, field: str, entry: object) -> None:
        if not isinstance(entry, dict):
            self._wrong(field, entry, "is no mapping", "{from: a, to: b}")
            return
        self._known(field, entry, EDGE)
        ends = [entry.get("from"), entry.get("to")]
        for key, name in zip(("from", "to"), ends, strict=True):
            if name not in self.costs:
                self._wrong(f"{field}.{key}", name, "is no operator", nearest(str(name), self.names))
        source, target = map(str, ends)
        if (source, target) in self.edges:
            self._wrong(field, f"{source} to {target}", "is there already", "leave one of the two out")
        self.edges[source, target] = self._crossing(field, entry)

    def _crossing(self, field: str, entry: Mapping[str, object]) -> Fraction:
        """Seconds of an edge between ranks."""
        seconds = self._number(entry, "seconds", field, LONGEST)
        bytes_ = self._number(entry, "bytes", field, MOST_BYTES)
        if seconds is not None and bytes_ is not None:
            self._wrong(f"{field}.seconds", seconds, "says the same as bytes", "leave one of the two out")
        if bytes_ is not None and not self.link:
            rule = "bytes need the speed of a link above 0"
            self._wrong(f"{field}.bytes", bytes_, rule, "link_bytes_per_s: 50e9 at the top")
        if bytes_ and self.link:
            return exact(bytes_) / exact(self.link)
        return exact(seconds or 0)

    def shape_problems(self) -> Iterator[Problem]:
        """Circles, parts that nothing connects, and operators none of which takes time."""
        edges = [(a, b) for a, b in self.edges if a in self.costs and b in self.costs]
        circle = _circle(self.names, edges)
        if circle:
            rule = "the operators need each other in a circle"
            hint = f"leave the edge from {circle[-2]} to {circle[-1]} out"
            yield Problem("graph.edges", " → ".join(circle), rule, hint)
        parts = _parts(self.names, edges)
        if len(parts) > 1 and not any(problem.field == "graph.edges" for problem in self.problems):
            heads = ", ".join(part[0] for part in parts[:4]) + (", …" if len(parts) > 4 else "")
            rule = f"nothing connects {len(parts)} parts of the graph, those of {heads}"
            hint = f"an edge between {parts[0][-1]} and {parts[1][0]}, or one file for each part"
            yield Problem("graph.edges", len(edges), rule, hint)
        if self.costs and not self.problems and not any(any(times) for times, _ in self.costs.values()):
            yield Problem("graph.operators", len(self.names), "no pass takes any time", "forward_s: 0.001")

    def branches(self) -> Branches:
        """Return the graph, its operators in topological order."""
        needs: dict[str, list[str]] = {name: [] for name in self.names}
        for source, target in self.edges:
            needs[target].append(source)
        names = tuple(TopologicalSorter(needs).static_order())
        number = {name: i for i, name in enumerate(names)}
        times = [time for passes, _ in self.costs.values() for time in passes]
        per_s = ticks_in_unit([*times, *self.edges.values()], MOST_TICKS)
        costs = tuple(
            Cost(*(int(time * per_s) for time in self.costs[name][0]), *self.costs[name][1]) for name in names
        )
        edges = {(number[a], number[b]): int(time * per_s) for (a, b), time in self.edges.items()}
        return Branches(Graph(costs, edges), per_s, names)


def _circle(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> list[str]:
    """Operators of a circle, the first one again at its end; empty where there is none."""
    needs: dict[str, set[str]] = {name: set() for name in names}
    for source, target in edges:
        needs[target].add(source)
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def _parts(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Operators that edges connect, whichever way they go."""
    part = {name: [name] for name in names}
    for a, b in edges:
        if part[a] is not part[b]:
            larger, smaller = sorted((part[a], part[b]), key=len, reverse=True)
            larger += smaller
            part |= dict.fromkeys(smaller, larger)
    return list({id(members): members for members in part.values()}.values())
