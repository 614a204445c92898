"""Follow each playbook of the documentation with the code that stands in it."""

import csv
import json
import os
import shutil
import subprocess
import sys
from fractions import Fraction
from importlib.resources import files
from types import ModuleType

import numpy as np
import pytest
from doc_pages import blocks
from numpy.typing import NDArray
from source_tree import ROOT

from meshwright.cluster.catalog import usual_node
from meshwright.cluster.data_tables import read_table
from meshwright.cluster.load import load_cluster
from meshwright.cost.closed_form.evaluate_plans import evaluate
from meshwright.cost.memory.micro_batches_in_flight import held_counts
from meshwright.cost.pipeline_time import gpipe_1f1b_interleaved
from meshwright.cost.pipeline_time.time_action_lists import played_seconds
from meshwright.errors import UnsupportedError
from meshwright.frameworks import option_names as option_names_module
from meshwright.frameworks.exporting.plan_facts import plan_facts
from meshwright.frameworks.exporting.uniform_plan import read_uniform
from meshwright.frameworks.importing.command_line import CommandLine, GivenOption
from meshwright.frameworks.option_table import OptionRow, OptionTable, never, read_facts, written_options
from meshwright.model.describe import describe_model
from meshwright.model.families.architecture_table import FAMILIES, read_architecture
from meshwright.model.load import load_model
from meshwright.plans.arrays.short_plans import from_shorts
from meshwright.plans.context_parallel import Context
from meshwright.plans.context_parallel_forms import CONTEXT_FORMS
from meshwright.plans.files.plan_file import parse_plan
from meshwright.plans.forms.conversion import expand
from meshwright.plans.resolve import resolve_with
from meshwright.plans.rules.check_plan import check_plan
from meshwright.plans.rules.stack_limits import STACK_LIMITS
from meshwright.program.lowering.lower_plan import lower
from meshwright.program.pass_items import Collective
from meshwright.program.pipeline_messages.nccl_deadlock_check import check_messages
from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.insert_messages import insert_messages
from meshwright.schedules.schedule_kind import ScheduleKind
from meshwright.schedules.timeline import run
from meshwright.search.space.legal_plans import enumerate_space
from meshwright.search.space.variants import all_variants
from meshwright.simulate.plan_estimate import simulated_estimate
from meshwright.stack.load import load_stack, parse_stack
from meshwright.verbs.verify import verified

RANKS, ROUNDS = 4, 3
DEGREES = {"pp": 4, "dp_replicate": 1, "dp_shard": 8, "cp": 1, "tp": 2}


def _defined(source, **names):
    exec(compile(source, "playbook", "exec"), names)
    return names


@pytest.fixture
def rounds(monkeypatch):
    """The playbook's schedule, entered in both tables."""
    function, entry, form = blocks("add-a-schedule.md", "python")
    names = _defined(function, ScheduleKind=ScheduleKind)
    (kind,) = _defined("entry = {" + entry + "}", **names)["entry"].items()
    monkeypatch.setitem(SCHEDULES, *kind)
    made = _defined(
        form, np=np, NDArray=NDArray, Array=np.ndarray, gpipe_seconds=gpipe_1f1b_interleaved.gpipe_seconds
    )
    monkeypatch.setitem(gpipe_1f1b_interleaved.FORMS, kind[0], made["gpipe_rounds_seconds"])
    return kind[0]


def test_the_new_schedule_runs_and_its_messages_pair_up(rounds):
    lists = SCHEDULES[rounds].lists(RANKS, ROUNDS * RANKS, 1)
    one_round = run(SCHEDULES["gpipe"].lists(RANKS, RANKS, 1), lambda action: Fraction(1)).makespan
    assert run(lists, lambda action: Fraction(1)).makespan == ROUNDS * one_round
    assert check_messages(insert_messages(lists, range(RANKS)), range(RANKS)) == []


def test_the_new_schedule_holds_no_more_after_its_steady_rounds(rounds):
    kind = SCHEDULES[rounds]
    for count in (kind.steady_rounds * RANKS, 4 * kind.steady_rounds * RANKS):
        for rank, actions in enumerate(kind.lists(RANKS, count, 1)):
            held = int(held_counts(actions, [rank]).max())
            assert held == kind.in_flight(rank, RANKS, count, 1) == RANKS


def test_the_new_closed_form_is_what_is_played(rounds):
    rng = np.random.default_rng(0)
    forward, backward = rng.uniform(1, 2, (2, 50, RANKS))
    message = rng.uniform(0, 0.2, 50)
    arguments = forward, backward, message, np.full(50, ROUNDS * RANKS), RANKS
    np.testing.assert_allclose(
        gpipe_1f1b_interleaved.FORMS[rounds](*arguments),
        played_seconds(ScheduleChoice(rounds), *arguments),
        rtol=1e-9,
    )


@pytest.fixture
def gather_ring(monkeypatch):
    """The playbook's form of context parallelism with its kernel, and Meshwright's own stack, which then runs it."""
    description, entry, kernel = blocks("add-a-context-form.md", "python")
    ((name, kind),) = _defined("entry = {" + entry + "}", **_defined(description))["entry"].items()
    monkeypatch.setitem(CONTEXT_FORMS, name, kind)
    module = ModuleType(kind.kernel.partition(":")[0])
    vars(module).update(_defined(kernel, __name__=module.__name__))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    text = files("meshwright.stack").joinpath("files/meshwright-0.1.yaml").read_text(encoding="utf-8")
    stack = parse_stack(text.replace("contexts: [", f"contexts: [{name}, {name}+ulysses, "))
    monkeypatch.setattr("meshwright.verbs.verify.own_stack", lambda other: stack)
    return name, stack


def _with_form(name, stack, **context):
    layout = {"cp": 4, "context": {"form": name, **context}}
    plan = parse_plan(
        f"{{plan: 1, model: llama-3.2-1b, cluster: h100-sxm-80gb x 4, stack: generic, "
        f"layout: {json.dumps(layout)}, workload: {{seq_len: 4096, global_batch: 1}}}}"
    )
    return plan, resolve_with(plan, load_model(plan.model), load_cluster(plan.cluster), stack)


@pytest.mark.parametrize("ulysses", [1, 2])
def test_the_new_form_exchanges_what_it_says_and_is_priced(gather_ring, ulysses):
    plan, resolved = _with_form(*gather_ring, ulysses=ulysses)
    setting = resolved.setting
    program = lower(resolved.long, setting.model, setting.cluster, setting.workload, setting.stack)
    arch, ranks = setting.model.architecture, "cp" if ulysses == 1 else "cp_ring"
    once = 2 * 2 * arch.kv_heads * arch.head_dim * 4096 / ulysses
    items = [item for kind in "FB" for item in program.block_items[1, kind]]
    found = [
        one for item in items for one in getattr(item, "overlapped", (item,)) if isinstance(one, Collective)
    ]
    moved = [(one.kind, one.phase, one.logical_bytes) for one in found if one.axes == (ranks,)]
    assert moved == [("all-gather", "F", once), ("ring", "I", 2 * once)]
    (step_s,) = evaluate(from_shorts([plan]), setting).step_s
    assert step_s == pytest.approx(sum(simulated_estimate(resolved.long, setting).parts.values()), rel=0.03)


def test_the_new_form_is_searched_and_refused_where_a_stack_lacks_it(gather_ring):
    _, resolved = _with_form(*gather_ring)
    setting = resolved.setting
    space = enumerate_space(setting, variants=all_variants(setting, {}))
    forms = space.base.values["context"]
    assert {Context(form="gather-ring"), Context(form="gather-ring", ulysses=2)} <= {*forms}
    assert space.later.legal[forms.index(Context(form="gather-ring"))].any()
    (problem,) = check_plan(resolved.long, setting.model, setting.cluster, load_stack("generic"))
    assert (problem.field, problem.value) == ("layout.context", "gather-ring")


def test_the_new_form_computes_what_one_device_computes(gather_ring):
    _, resolved = _with_form(*gather_ring)
    assert verified(resolved, 4, lambda what, part: None).equal


FOLLOWED = """
import json, sys
from meshwright import api
for keep in ((), ("overlap_tensor_parallel=true",)):
    found = api.plan("llama-3.2-1b", on="h100-sxm-80gb x 4", seq_len=256, global_batch=8,
                     keep=("pp=1", "cp=1", "micro_batch=1", *keep), forbid=("tp=1",))
    print(json.dumps(found.to_json()))
"""


def test_the_new_choice_is_searched_kept_and_explained(tmp_path):
    """Follow the playbook in a copy of the package: a field, a file and a line."""
    field, description, entry = blocks("add-a-searched-choice.md", "python")
    shutil.copytree(ROOT / "src", tmp_path, dirs_exist_ok=True)
    plans = tmp_path / "meshwright/plans"
    (plans / "choices/overlap_tensor_parallel.py").write_text(description)
    name = "overlap_tensor_parallel"
    _insert(plans / "forms/short.py", "    context: NamedContext | None = None\n", field)
    _insert(plans / "choices/__init__.py", '    "offload": offload,\n', entry)
    imported = f"from meshwright.plans.choices.{name} import {name}\n"
    _insert(plans / "choices/__init__.py", "from meshwright.plans.choices.offload import offload\n", imported)
    run = subprocess.run(
        [sys.executable, "-c", FOLLOWED],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    searched, kept = map(json.loads, run.stdout.splitlines())
    assert searched["rejected"]["sequences are too short to overlap"] > 0
    assert searched["plans"][0]["plan"]["layout"][name] is False
    reasons = {reason["field"]: reason["reason"] for reason in searched["plans"][0]["reasons"]}
    assert reasons[name].startswith(f"{name} true: ")
    assert {one["plan"]["layout"][name] for one in kept["plans"]} == {True}
    assert f"not {name} = true, as asked" in kept["rejected"]


def _insert(path, after, lines):
    text = path.read_text(encoding="utf-8")
    assert text.count(after) == 1
    path.write_text(text.replace(after, after + lines), encoding="utf-8")


def _plan(text):
    plan = parse_plan(text)
    model, cluster, stack = load_model(plan.model), load_cluster(plan.cluster), load_stack(plan.stack)
    return expand(plan, model.architecture), model, cluster, stack


def test_the_new_exporter_writes_a_plan_and_refuses_what_it_cannot_say(monkeypatch):
    limits, line, function, entry, _ = blocks("add-an-exporter.md", "python")
    (facts,) = blocks("add-an-exporter.md", "yaml")
    made = _defined("entry = {" + line + "}", **_defined(limits))["entry"]
    monkeypatch.setitem(STACK_LIMITS, "degrees", made["degrees"])
    names, stack = _defined(function), parse_stack(facts)
    export = _defined("entry = {" + entry + "}", **names)["entry"]["degrees"]
    text = blocks("plans.md", "yaml")[0]
    with pytest.raises(UnsupportedError) as caught:
        export(*_plan(text)[:3], stack)
    assert [problem.field for problem in caught.value.problems] == ["pipeline.virtual_stages"]
    plain = text.replace("interleaved-1f1b", "1f1b").replace("virtual_stages: 2", "virtual_stages: 1")
    made = export(*_plan(plain)[:3], stack)
    lines = made.files["degrees/env.sh"].splitlines()[1:]
    assert lines == [f"export {axis.upper()}={degree}" for axis, degree in DEGREES.items()]
    assert [refusal.key for refusal in made.refused] == ["stack"]


def _read(rows, options):
    given = {name: GivenOption(name, tuple(words), 1) for name, *words in options}
    return {path: fact.value for path, fact in read_facts(rows, CommandLine(given, [])).items()}


def test_the_table_of_the_new_exporter_is_written_and_read_back():
    *_, source = blocks("add-an-exporter.md", "python")
    rows = _defined(source)["TABLE"].rows
    long, model, _, stack = _plan(blocks("plans.md", "yaml")[0])
    facts = plan_facts(read_uniform(long, model), model.architecture, stack)
    written = written_options(rows, facts)
    assert [option for option in written if option[0] in ("--stages", "--tensor-ranks", "--launcher")] == [
        ("--stages", "4"),
        ("--tensor-ranks", "2"),
        ("--launcher", "torchrun"),
    ]
    read = _read(rows, written)
    assert read == {path: facts[path] for path in read}
    assert len(read) == sum(isinstance(row, OptionRow) for row in rows)


def test_a_new_release_writes_the_new_name_and_reads_both(monkeypatch, tmp_path):
    new, old = blocks("add-a-framework-release.md", "text")
    (source,) = blocks("add-a-framework-release.md", "python")
    folder = tmp_path / "torchtitan"
    folder.mkdir()
    (folder / "torchtitan-0.4.0.txt").write_text(new)
    (folder / "torchtitan-other-releases.txt").write_text(old)
    monkeypatch.setattr(option_names_module, "files", lambda package: tmp_path)
    table = _defined(source, OptionTable=OptionTable, OptionRow=OptionRow, never=never)["TABLE"]
    assert {row.option for row in table.rows} == table.names | table.other_names
    assert table.names.isdisjoint(table.other_names)
    facts = {"workload.seq_len": 4096, "workload.global_batch": 64}
    written = written_options(table.rows, facts)
    assert {name for name, _ in written} == table.names
    assert _read(table.rows, written) == facts
    assert _read(table.rows, [("--training.seq_len", "4096")]) == {"workload.seq_len": 4096}


def test_a_plan_can_use_the_new_device(tmp_path):
    (text,) = blocks("add-a-device.md", "yaml")
    path = tmp_path / "lab.yaml"
    path.write_text(text)
    cluster = load_cluster(path)
    assert cluster.pool.device.peak_flops == {"bf16": 1e15, "fp8": 2e15}
    assert cluster.usd_per_hour == pytest.approx(32 * 3.2)
    short = parse_plan(blocks("plans.md", "yaml")[0].replace("h100-sxm-80gb x 64", str(path)))
    layout = short.layout.model_copy(update={"dp_shard": 4})
    model = load_model(short.model)
    plan = expand(short.model_copy(update={"layout": layout}), model.architecture)
    assert check_plan(plan, model, cluster, load_stack(plan.stack)) == []


def test_the_new_row_fits_the_catalogue():
    (line,) = blocks("add-a-device.md", "csv")
    header = read_table("accelerators")[0].keys()
    (row,) = csv.DictReader(line.splitlines(), fieldnames=list(header))
    assert row.keys() == header
    assert None not in row.values()
    assert float(row["memory_gib"]) == pytest.approx(0.99 * float(row["memory_marketed_gb"]))
    assert row["memory_origin"] in {known["memory_origin"] for known in read_table("accelerators")}
    assert row["confidence"] in {known["confidence"] for known in read_table("accelerators")}


def test_a_device_without_a_usual_node_gets_the_guess_that_the_page_names():
    known = {row["device"] for row in read_table("nodes") if row["usual"]}
    rows = read_table("accelerators")
    lone = next(r["id"] for r in rows if r["id"] not in known and not r["scaleup_link"].startswith("PCIe"))
    node = usual_node(lone)
    assert (node.devices, node.nic_count) == (8, 8)
    assert node.nic_bytes_per_s * 8 == 8 * 400e9
    assert node.source.startswith("guess")


def test_the_new_model_is_read(tmp_path):
    (text,) = blocks("add-a-model.md", "json")
    path = tmp_path / "config.json"
    path.write_text(text)
    described = describe_model(load_model(path))
    attention, feedforward = 2048 * (2 * 2048 + 2 * 256), 3 * 2048 * 5632
    assert described["parameters"] == 22 * (attention + feedforward + 2 * 2048) + 2 * 32000 * 2048 + 2048
    assert "rope_theta" in str(described["assumed"])


def test_the_new_family_is_read(monkeypatch):
    (code,) = blocks("add-a-model.md", "python")
    monkeypatch.setitem(FAMILIES, "sandwich", _defined(code)["sandwich"])
    config = json.loads(blocks("add-a-model.md", "json")[0]) | {"model_type": "sandwich"}
    arch = read_architecture(config, "new", "a test")
    assert (arch.norms_per_layer, arch.qkv_bias, arch.family) == (4, True, "sandwich")
