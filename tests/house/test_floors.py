"""Imports go downwards only, floor 0 is standard library, torch is nowhere. Every breach is listed at once."""

import ast
import sys
from graphlib import TopologicalSorter

from source_tree import (
    file_imports,
    imports,
    module_name,
    modules,
    nodes,
    own_imports,
    room,
    room_of_ours,
)

FLOORS: dict[str, float] = {
    "": 0,  # meshwright/__init__.py
    "units": 0,
    "errors": 0,
    "result": 0,
    "model": 1,
    "cluster": 1,
    "workload": 1,
    "stack": 1,
    "plans": 1,
    "schedules": 1,
    "play": 1,
    "program": 1.5,
    "cost": 2,
    "simulate": 2,
    "runtime": 2,
    "economy": 2.5,
    "search": 3,
    "placement": 3,
    "launchers": 2,
    "frameworks": 3,
    "ingestion": 3,
    "measurement": 3,
    "present": 3,
    "validation": 3,
    "calibration": 3,
    "verbs": 4,
    "explanation": 4,
    "api": 4,
    "cli": 5,
    "web": 5,
    "python_api": 5,
    "__main__": 5,
}
SAME_FLOOR = {
    ("model", "workload"),  # the adapters of a workload are a part of the model that trains
    ("plans", "model"),
    ("plans", "cluster"),
    ("plans", "stack"),
    ("plans", "workload"),
    ("plans", "schedules"),
    ("play", "schedules"),  # the actions of lists and what passes need
    ("schedules", "play"),  # the figures of a schedule are those of its lists played
    ("stack", "plans"),  # stack files are read by the strict reader of plan files
    ("cluster", "plans"),  # cluster files too
    ("stack", "workload"),  # which recipes of fp8 a stack trains with
    ("stack", "schedules"),  # which schedules a stack file may name
    ("calibration", "validation"),  # the runs that are fitted are the rows that are validated
    ("simulate", "cost"),  # both price with the same forms
    ("api", "verbs"),
    ("python_api", "cli"),  # it reads and refuses the same options
    ("cli", "python_api"),  # it prints the answers of the Python functions
    ("cli", "web"),
    ("web", "cli"),  # it says what is wrong in the same form
    ("__main__", "cli"),
    ("api", "explanation"),
    ("explanation", "verbs"),  # the searches and predictions of `plan` and `predict`
    ("ingestion", "frameworks"),  # logs hold the options of frameworks
    ("ingestion", "measurement"),  # the results of a measurement, which know no torch
    ("ingestion", "calibration"),  # what published runs leave of a bare measurement
    ("ingestion", "validation"),  # rows of logs are held against the columns that validate reads
}
CEILINGS = {"search": 1}  # search is handed `evaluate` and knows no prices
THIRD_PARTY = {
    "numpy": {
        "workload",
        "plans",
        "program",
        "cost",
        "simulate",
        "search",
        "placement",
        "present",
        "economy",
        "validation",
        "calibration",
        "api",
        "ingestion",
        "runtime",
        "verbs",
        "explanation",
    },
    "torch": {"measurement", "runtime"},
    "safetensors": {"runtime"},
    "tokenizers": {"runtime"},
    "pydantic": {"plans", "cluster", "stack", "web"},
    "pydantic_core": {"plans"},  # errors of pydantic by their kind
    "ruamel": {"plans", "cluster", "launchers"},
    "jsonschema": {"launchers"},
    "typer": {"cli", "present"},
    "rich": {"cli", "present", "runtime"},
    "pandas": {"present"},
    "prometheus_client": {"runtime"},
    "starlette": {"web"},
    "uvicorn": {"web"},
}
HEAVY = {"torch", "pandas", "matplotlib", "scipy", "jax", "tensorflow", "transformers", "ray", "megatron"}
FRAMES = "meshwright.present.data_frame"
"""The only module that imports pandas, inside a function."""
OPTIONAL_OUTPUTS = "meshwright.runtime.progress.metrics_outputs"
"""Imports the outputs of metrics that need further packages inside a function, where they are asked for."""
WITH_TORCH = {"measurement", "runtime"}
"""The tower that runs on devices; nothing of the other imports more than its results."""
LAZY_ROOMS = {"cli", "api", "verbs"}  # a verb loads what it needs when it runs: `--help` stays quick


def _wrong_import(here, other):
    if FLOORS[other] > CEILINGS.get(here, FLOORS[here]):
        return f"floor {FLOORS[other]:g} from floor {CEILINGS.get(here, FLOORS[here]):g}"
    neighbours = FLOORS[other] == FLOORS[here] > 0
    return "a neighbour" if neighbours and (here, other) not in SAME_FLOOR else ""


def test_every_room_has_a_floor():
    assert {room(module_name(path)) for path in modules()} <= FLOORS.keys()


def test_modules_import_their_own_floor_or_below():
    wrong = {
        f"{module_name(path)} imports {name}: {reason}"
        for path in modules()
        for name in own_imports(path)
        if room(name) != room(module_name(path))
        and (reason := _wrong_import(room(module_name(path)), room(name)))
    }
    assert not wrong


def test_no_module_imports_itself_in_a_circle():
    graph = {module_name(path): own_imports(path) for path in modules()}
    TopologicalSorter(graph).prepare()  # raises CycleError, naming the circle


def test_other_packages_are_imported_only_where_they_belong():
    outside = {
        (room(module_name(path)), module.split(".")[0])
        for path in modules()
        for module, _ in file_imports(path)
        if not room_of_ours(module) and module.split(".")[0] not in sys.stdlib_module_names
    }
    assert not {(here, top) for here, top in outside if here not in THIRD_PARTY.get(top, set())}


def test_nothing_heavy_is_imported_or_named_as_a_module():
    named = {
        (module_name(path), argument.value.split(".")[0])
        for path in modules()
        for node in nodes(path)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("import_module", "find_spec")
        for argument in node.args
        if isinstance(argument, ast.Constant)
    }
    imported = {
        (module_name(path), module.split(".")[0]) for path in modules() for module, _ in file_imports(path)
    }
    assert not {
        (module, top)
        for module, top in named | imported
        if top in HEAVY
        and not (top == "torch" and room(module) in WITH_TORCH)
        and (module, top) != (FRAMES, "pandas")
    }


def test_planning_takes_only_results_from_the_tower_with_torch():
    taken = {
        name
        for path in modules()
        for name in own_imports(path)
        if room(name) in WITH_TORCH and room(module_name(path)) not in {*WITH_TORCH, "verbs"}
    }
    assert taken <= {"meshwright.measurement.results"}


def test_no_private_name_crosses_a_module():
    crossing = {
        f"{module_name(path)} imports {module}.{name}"
        for path in modules()
        for module, name in file_imports(path)
        if room_of_ours(module) and name.startswith("_") and name != "__version__"
    }
    assert not crossing


def test_imports_stand_at_the_top_except_where_a_verb_must_start_quickly():
    hidden = {
        f"{module_name(path)}.{function.name} imports {module}"
        for path in modules()
        if room(module_name(path)) not in LAZY_ROOMS and module_name(path) not in (FRAMES, OPTIONAL_OUTPUTS)
        for function in nodes(path)
        if isinstance(function, ast.FunctionDef)
        for module, _ in imports(ast.walk(function))
    }
    assert not hidden
