"""The verbs as Python functions: keywords, repeated calls, documents equal to ``--json``, printed tables, errors."""

import inspect
import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from xml.etree.ElementTree import fromstring

import pytest
from command_runs import plan_text, run, write
from encoder_cases import VL
from example_run_tables import random_rows
from example_run_tables import write as write_runs

import meshwright as mw

OPTIONS = Path(__file__).parent / "house" / "cli_options.txt"
ON = "h100-sxm-80gb x 8"
FUNCTIONS = sorted(set(mw.__all__) - {"Answer", "InfeasibleError", "InputError"})


PROGRAMS = re.compile(r"\.target_checks\.scripts|\.launchers\.scripts")
"""Programs that run in the Python of something else."""
SERVING = "web"
"""It answers nothing itself, and runs until it is ended."""


def keywords_of_options():
    """Return the keywords and positional arguments of every verb, as the frozen list of options has them."""
    found: dict[str, tuple[set[str], int]] = {}
    for line in OPTIONS.read_text(encoding="utf-8").splitlines():
        verb, words = line.split(" ", 1)
        if verb == SERVING:
            continue
        options, positional = found.setdefault(verb, (set(), 0))
        names = re.findall(r"--([a-z0-9-]+)", words)
        if not names:
            found[verb] = options, positional + 1
        elif names[0] not in ("json", "debug"):
            options.add(names[0].replace("-", "_"))
    return found


@pytest.mark.parametrize(("verb", "expected"), keywords_of_options().items())
def test_keywords_are_the_long_options(verb, expected):
    parameters = inspect.signature(getattr(mw, "import_file" if verb == "import" else verb)).parameters
    keywords = {name.rstrip("_") for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
    assert (keywords, len(parameters) - len(keywords)) == expected


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("torch")
    place = tmp_path_factory.mktemp("python")
    write(place / "plan.yaml", plan_text())
    write(place / "other.yaml", plan_text(recompute="full"))
    small = {"model": "llama-3.2-1b", "cluster": "h100-sxm-80gb x 2", "layout": "{dp_shard: 2}"}
    write(place / "small.yaml", plan_text(**small))
    write(place / "ours.yaml", plan_text(**small, stack="meshwright"))
    run("export", place / "plan.yaml", "--to", "megatron", "-o", place / "megatron")
    return place


def cases(place):
    """Return calls: function, positional arguments, keywords; and the words of the same command."""
    plan, other, small, ours = (str(place / f"{name}.yaml") for name in ("plan", "other", "small", "ours"))
    sizes = {"seq_len": 4096, "global_batch": 64}
    return {
        "plan": (["llama-3.1-8b"], {"on": ON, **sizes, "top": 1, "keep": ["pp=1", "cp=1", "recompute=full"]}),
        "describe": (["llama-3.1-8b"], {}),
        "models": (["qwen3"], {}),
        "devices": (["h100"], {}),
        "stacks": ([], {}),
        "predict": ([plan], {"set": ["micro_batch=1"], "tokens": "1T"}),
        "compare": ([plan, other], {}),
        "explain": ([plan], {"against": other}),
        "report": ([small], {"no_search": True, "tokens": "1T"}),
        "export": ([plan], {"to": "megatron"}),
        "launch": ([ours], {"on": "kubernetes", "storage": "/shared", "dry_run": True}),
        "import_file": (
            [str(place / "megatron" / "megatron" / "args.sh")],
            {"model": "llama-3.1-8b", "on": ON},
        ),
        "check": ([small], {}),
        "probe": ([small], {"top": 1}),
        "schedule": (["1f1b"], {"stages": 2, "micro_batches": 4}),
    }


def words(keywords):
    """Return keywords as options of the command line."""
    for name, value in keywords.items():
        option = f"--{name.rstrip('_').replace('_', '-')}"
        for one in value if isinstance(value, list) else [value]:
            yield from (option,) if one is True else (option, str(one))


def without_times(data):
    """Return a document without the times that a search or measurement took."""
    if isinstance(data, dict):
        return {key: without_times(value) for key, value in data.items() if key != "search_time_s"}
    return [without_times(value) for value in data] if isinstance(data, list) else data


def import_all():
    for module in walk_packages(mw.__path__, "meshwright."):
        if not module.name.endswith("__main__") and not PROGRAMS.search(module.name):
            import_module(module.name)


@pytest.mark.parametrize("name", sorted(cases(Path())))
def test_functions_answer_twice_what_the_command_prints(name, folder):
    import_all()
    arguments, keywords = cases(folder)[name]
    first, second = (getattr(mw, name)(*arguments, **keywords) for _ in range(2))
    assert without_times(first.to_dict()) == without_times(second.to_dict())
    verb = "import" if name == "import_file" else name
    done = run(verb, *arguments, *words(keywords), "--json")
    assert without_times(first.to_dict()) == without_times(done.data)
    assert first.ok == (done.code == 0)
    assert str(first).strip()
    page = first._repr_html_()
    assert fromstring(page.replace("<br>", "<br/>")).tag == "div"
    assert "<script" not in page
    assert len(first.to_frame()) == len(rows_of(first.to_dict()))


def rows_of(document):
    return next((document[name] for name in ("plans", "rows", "models") if name in document), [document])


def test_a_frame_has_the_keys_joined_by_dots(folder):
    frame = mw.plan("llama-3.1-8b", on=ON, seq_len=4096, global_batch=64, keep=["pp=1"], top=2).to_frame()
    assert {"plan.layout.tp", "predict.step_time_s", "predict.memory_bytes.total"} <= set(frame.columns)
    assert frame["predict.step_time_s"].is_monotonic_increasing


REFUSED = {
    "verify": {"ranks": 99},
    "run": {"steps": 1, "emulate": True},
    "convert": {"merge": True, "output": "none"},
    "measure": {"collective_tests": ["none.txt"]},
    "ingest": {},
    "validate": {},
    "calibrate": {},
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_functions_refuse_twice_what_the_command_refuses(name, folder):
    import_all()
    arguments = (
        [] if name == "measure" else [str(folder / ("plan.yaml" if name in ("verify", "run") else "none"))]
    )
    for _ in range(2):
        with pytest.raises(mw.InputError) as caught:
            getattr(mw, name)(*arguments, **REFUSED[name])
    options = [f"--{key}" for key, value in REFUSED[name].items() if value is True]
    given = {key: value for key, value in REFUSED[name].items() if value is not True}
    refused = run(name, *arguments, *options, *words(given), "--json").data["problems"]
    fields = [problem.field for problem in caught.value.problems]
    assert fields == [problem["field"] for problem in refused]


def test_every_function_is_called():
    assert sorted({*cases(Path()), *REFUSED}) == FUNCTIONS


def test_runs_are_validated_as_by_the_command(tmp_path):
    table = tmp_path / "runs.csv"
    write_runs(table, random_rows(4, seed=1))
    assert mw.validate(table).to_dict() == run("validate", table, "--json").data


def test_a_question_without_an_answer_is_an_infeasible_error():
    with pytest.raises(mw.InfeasibleError):
        mw.plan("llama-3.1-70b", on="h100-sxm-80gb x 1", seq_len=4096, global_batch=1)


def test_the_import_is_light():
    code = "import sys, meshwright; print([m for m in ('torch', 'numpy', 'typer') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


def test_the_package_runs_as_a_module():
    done = subprocess.check_output([sys.executable, "-m", "meshwright", "--version"], text=True)
    assert done == f"meshwright {mw.__version__}\n"


def test_images_are_a_text_or_a_mapping(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(VL), encoding="utf-8")
    asked = {"on": ON, "seq_len": 2048, "global_batch": 16, "stack": "generic", "top": 1, "keep": "pp=1"}
    found = [
        mw.plan(str(file), **asked, images=images)
        for images in ("2x1024", {"per_sequence": 2, "tokens": 1024})
    ]
    assert without_times(found[0].data) == without_times(found[1].data)
    with pytest.raises(mw.InputError, match=r"workload\.images"):
        mw.plan(str(file), **asked, images={"per_sequence": 2})
