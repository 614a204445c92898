"""The documentation says what is true: generated parts, names, tables, links, numbers."""

import re
from dataclasses import fields

import command_line
import pytest
import write_docs
from doc_pages import blocks, page, pages
from source_tree import PACKAGE, ROOT, modules, room

from meshwright.cluster.catalog import device_ids
from meshwright.cluster.load import load_cluster
from meshwright.cost.closed_form.evaluate_plans import PARTS
from meshwright.cost.flops_per_token import model_flops_per_token
from meshwright.cost.memory.memory_breakdown import KEYS
from meshwright.frameworks.export_targets import TARGET_NAMES
from meshwright.model.load import load_model
from meshwright.model.zoo_names import zoo_names
from meshwright.plans.files.plan_file import dump_plan, parse_plan
from meshwright.plans.files.yaml_text import read_value
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.rules.check_plan import check_plan
from meshwright.plans.rules.not_in_this_release import REFUSALS, unsupported
from meshwright.result import Report
from meshwright.schedules.generators import SCHEDULES
from meshwright.stack.load import load_stack, stack_names

LINK = re.compile(r"\[[^\]]+\]\(([^)#]+\.md)?(?:#([a-z-]+))?\)")
CODE = re.compile(r"`([^`]+)`")
ROW = re.compile(r"^\|(.+)\|$", re.MULTILINE)


ELSEWHERE = {"explain.md", "findings.md"}
"""Pages that take long to make: tested beside what they are about, so that the house rules are quick."""


@pytest.mark.parametrize(
    "path",
    [path for path in write_docs.pages() if path.name not in ELSEWHERE and path.parent.name != "concepts"],
    ids=lambda path: path.name,
)
def test_generated_parts_are_fresh(path):
    text = path.read_text(encoding="utf-8")
    assert write_docs.rewritten(text) == text, "run `make docs`"


def test_every_generated_section_stands_somewhere():
    everything = "".join(path.read_text(encoding="utf-8") for path in write_docs.pages())
    assert {match[1] for match in write_docs.MARKED.findall(everything)} == set(write_docs.SECTIONS)


def test_commands_in_the_documentation_exist():
    shell = "\n".join(
        [
            *re.findall(r"`(meshwright [^`]+)`", _everything()),
            *(line for name in pages() for block in _shell(name) for line in block.splitlines()),
        ]
    )
    options = {verb.name: {n for p in verb.parameters for n in p.names} for verb in command_line.verbs()}
    used = re.findall(r"^meshwright +([a-z]\S*)(.*)$", shell, re.MULTILINE)
    assert used
    option = re.compile(r"(?<!\S)(--?[a-z][a-z-]*)")
    for verb, rest in used:
        assert verb in options, f"meshwright {verb} is no verb"
        own, _, of_run = rest.partition(" -- ")
        assert set(option.findall(own)) <= options[verb] | {"--help"}, rest
        assert set(option.findall(of_run)) <= options["run"], rest


def test_make_targets_in_the_documentation_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = re.findall(r"(?:`|^)make (?:[A-Z]+=\S+ )?([a-z]+)", _everything(), re.MULTILINE)
    assert {"quickstart", "test", "check", "proof"} <= set(named) | {"test"} <= targets | {"help"}


def _everything():
    paths = [*pages().values(), ROOT / "CONTRIBUTING.md"]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def _shell(name):
    text = pages()[name].read_text(encoding="utf-8")
    return re.findall(r"^```(?:bash|sh)[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_every_name_is_in_the_catalogue():
    text = page("catalogue.md")
    names = [*zoo_names(), *device_ids(), *SCHEDULES, *TARGET_NAMES]
    assert not [name for name in names if f"`{name}`" not in text]
    assert not [name for name in stack_names() if f"`{load_stack(name).id}`" not in text]


def test_links_lead_somewhere():
    everything = pages()
    for name, path in everything.items():
        for target, anchor in LINK.findall(path.read_text(encoding="utf-8")):
            found = (path.parent / target).resolve() if target else path
            assert found.is_file(), f"{name} links to {target}"
            headings = re.findall(r"^#+ (.+)$", found.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert not anchor or anchor in slugs, f"{name} links to {target}#{anchor}"


def test_files_that_are_named_exist():
    named = re.compile(r"`((?:src|tests|scripts|docs)/[\w./-]+)`")
    examples = {
        "src/meshwright/schedules/generators/gpipe_rounds.py",
        "src/meshwright/plans/choices/overlap_tensor_parallel.py",
        "src/meshwright/plans/context_parallel_forms/gather_ring.py",
        "src/meshwright/runtime/kernels/context_parallel/gather_ring.py",
        "src/meshwright/frameworks/degrees.py",
        "src/meshwright/stack/files/degrees-1.yaml",
        "src/meshwright/plans/rules/stack_limits/degrees.py",
    }
    for name, path in pages().items():
        for found in named.findall(path.read_text(encoding="utf-8")):
            missing = not (ROOT / found).exists() and "NAME" not in found
            assert not missing or found in examples, f"{name} names {found}"


def test_the_architecture_page_is_short_and_names_every_package():
    text = page("architecture.md")
    assert len(text.splitlines()) <= 60
    rooms = {room(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)) for path in modules()}
    assert not [name for name in rooms - {"__init__"} if f"`{name}`" not in text]


def test_metrics_names_every_number_of_a_report():
    text = page("metrics.md")
    names = [field.name for field in fields(Report)] + [*PARTS, *KEYS]
    assert not [name for name in names if f"`{name}`" not in text]


def test_the_worked_number_of_metrics():
    model = load_model("llama-3.1-70b")
    active = model.parameters_active - model.parameters_embedding
    assert f"{active / 1e9:.2f}·10⁹" in page("metrics.md")
    total = model_flops_per_token(model, 8192, causal=False)
    assert f"{total / 1e9:.1f}·10⁹ FLOP" in page("metrics.md")


def _page_plans():
    return [parse_plan(text) for text in blocks("plans.md", "yaml")]


def test_the_plans_page_shows_one_legal_plan_in_both_forms():
    short, long = _page_plans()
    model = load_model(short.model)
    assert expand(short, model.architecture) == long
    assert dump_plan(long) == blocks("plans.md", "yaml")[1]
    assert check_plan(long, model, load_cluster(long.cluster), load_stack(long.stack)) == []


def _changed(plan, path, text):
    data = plan.model_dump(by_alias=True)
    *sections, key = path.split(".")
    inner = data
    for section in sections:
        inner = inner[section]
    inner[key] = read_value(text, path)
    return LongPlan.model_validate(data)


def _support_rows():
    table = page("plans.md").partition("| key of the long form |")[2]
    for cells in (row.split(" | ") for row in ROW.findall(table) if "---" not in row):
        yield CODE.findall(cells[0])[0], CODE.findall(cells[1]), CODE.findall(cells[2])


def test_what_the_page_calls_accepted_and_refused_is():
    long = _page_plans()[1]
    fired = set()
    for key, accepted, refused in _support_rows():
        for text in accepted:
            assert not [p for p in unsupported(_changed(long, key, text)) if p.field.startswith(key)]
        for text in refused:
            plan = _changed(long, key, text)
            assert [p for p in unsupported(plan) if key.startswith(p.field)], f"{key}: {text} is not refused"
            fired |= {refusal for refusal in REFUSALS if list(refusal(plan))}
    assert fired == set(REFUSALS)


def test_the_page_lists_every_schedule_on_its_side():
    ((_, accepted, refused),) = [row for row in _support_rows() if row[0] == "pipeline.schedule.name"]
    assert accepted == list(SCHEDULES)
    assert refused == []


def test_every_page_is_on_the_site_and_the_site_names_only_pages_that_exist():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = re.findall(r"^ +- ([\w./-]+\.md)$", text, re.MULTILINE)
    assert len(named) == len(set(named))
    assert all((ROOT / page).is_file() for page in named)
    assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")} <= set(named)
