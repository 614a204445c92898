"""Import another framework's file, with a model and a cluster, as a plan, and report what is not accepted."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from meshwright.cluster.cluster import Cluster
from meshwright.cluster.load import load_cluster
from meshwright.errors import InputError, Problem
from meshwright.frameworks.import_formats import read_framework_file
from meshwright.frameworks.importing.custom_model_config import config_from_sizes, config_text
from meshwright.frameworks.importing.imported_file import ALONE, ImportedFile, OutsideFacts
from meshwright.frameworks.importing.launcher_file import with_launcher
from meshwright.frameworks.importing.model_match import matching_zoo_models, size_differences, sizes_of_model
from meshwright.frameworks.importing.multi_token_model import (
    config_with_multi_token_layers,
    multi_token_problem,
    needs_multi_token_layers,
)
from meshwright.frameworks.importing.plan_from_facts import Assembled, Target, assemble
from meshwright.frameworks.importing.stack_from_facts import changed_stack, stack_text
from meshwright.model.families.architecture_table import read_architecture
from meshwright.model.graph import ModelGraph
from meshwright.model.load import load_config, load_model
from meshwright.model.operators.blocks import build_graph
from meshwright.plans.files.plan_file import dump_plan
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import ShortPlan
from meshwright.stack.load import load_stack
from meshwright.stack.stack import Stack
from meshwright.verbs.import_suggestions import ChangedFile

GENERIC = "generic"
OWN = "own-model"
"""What a model is called that only the file describes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """Options of an import other than the file: named as on the command line; None leaves it to the file."""

    model: str | None = None
    on: str | None = None
    seq_len: int | None = None
    global_batch: int | None = None
    stack: str | None = None
    source: str | None = None
    variables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Imported:
    """A file as a plan. ``plan`` is None where there are errors; ``stack`` is the framework as the file runs it."""

    foreign: ImportedFile
    plan: ShortPlan | LongPlan | None
    model: ModelGraph
    cluster: Cluster
    stack: Stack
    own_stack: bool
    own_model: Mapping[str, Any] | None
    problems: tuple[Problem, ...]
    changed_file: ChangedFile

    def named_files(self, stem: str) -> dict[str, str]:
        """Files that the plan names: the model that only the file describes, the framework as the file runs it."""
        stack = {f"{stem}-stack.yaml": stack_text(self.stack)} if self.own_stack else {}
        return stack | ({f"{stem}-model.json": config_text(dict(self.own_model))} if self.own_model else {})

    def plan_for(self, stem: str) -> ShortPlan | LongPlan:
        """Return the plan with the names of the files written next to it."""
        assert self.plan is not None
        names = {"stack": f"{stem}-stack.yaml"} if self.own_stack else {}
        names |= {"model": f"{stem}-model.json"} if self.own_model else {}
        return self.plan.model_copy(update=names)

    def to_json(self, stem: str) -> dict[str, Any]:
        """Return the public form: the plan, its companion files (named ``stem``-…), the unread options."""
        return {
            "source": self.foreign.source,
            "release": self.foreign.release,
            "plan": self.plan_for(stem).to_data() if self.plan else None,
            "plan_text": dump_plan(self.plan_for(stem), self.notes()) if self.plan else None,
            "beside": self.named_files(stem),
            "unread": [{"key": u.key, "value": u.value, "why": u.why} for u in self.foreign.unread],
            "problems": [problem.to_json() for problem in self.problems],
        }

    def notes(self) -> dict[str, str]:
        """Return the words of the file that state each plan field, by path, for comments of a short plan."""
        if not isinstance(self.plan, ShortPlan):
            return {}
        return {path: fact.words for path, fact in self.foreign.facts.items() if fact.words}


def import_text(text: str, request: ImportRequest, launcher: str = "") -> Imported:
    """Read a file. Raises InputError where it, the model or the cluster can not be read at all.

    ``launcher`` is the text of the launch file in the same folder, if we wrote one.
    """
    foreign = _read(text, request, launcher, ALONE)
    problems: list[Problem] = []
    names = _names(foreign, request, problems)
    if problems:
        raise InputError([*foreign.problems, *problems])
    config, model, found = _model(foreign, names["model"])
    sizes = sizes_of_model(model.architecture)
    foreign = _read(text, request, launcher, OutsideFacts(sizes))
    cluster = load_cluster(names["on"])
    stack = load_stack(names["stack"])
    if len(cluster.pools) != 1:
        raise InputError(Problem("on", names["on"], "a file of this kind uses equal devices", "one pool"))
    target = Target(
        model=names["model"],
        cluster=names["on"],
        stack=names["stack"],
        devices=cluster.devices,
        seq_len=request.seq_len,
        global_batch=request.global_batch,
    )
    assembled = assemble(foreign, target, model.architecture)
    plan = assembled.plan
    found += assembled.problems
    if plan is not None and "recompute" not in foreign.facts:
        rule = "the file does not say whether layers are recomputed: read as none"
        hint = "recompute: full in the plan, if the training script does"
        found.append(Problem("recompute", None, rule, hint, "warning"))
    changed = changed_stack(foreign, stack, dp=_replicas(plan))
    all_problems = (*foreign.problems, *size_differences(foreign, model.architecture), *found)
    if any(problem.severity == "error" for problem in all_problems):
        plan = None

    def read_again(outside: OutsideFacts) -> tuple[ImportedFile, Assembled]:
        again = _read(text, request, launcher, outside)
        return again, assemble(again, target, model.architecture)

    changed_file = ChangedFile(foreign, assembled.draft, sizes, (model, cluster, changed), read_again)
    shown = changed_file.with_tried_suggestions(all_problems)
    return Imported(foreign, plan, model, cluster, changed, changed != stack, config, shown, changed_file)


def _read(text: str, request: ImportRequest, launcher: str, outside: OutsideFacts) -> ImportedFile:
    """Return the file with its launcher; the framework's rules know the facts from ``outside``."""
    return with_launcher(read_framework_file(text, request.source, request.variables, outside), launcher)


def _names(foreign: ImportedFile, request: ImportRequest, problems: list[Problem]) -> dict[str, str]:
    """Model, cluster and stack by name: as asked, as the file says, or as its sizes betray."""
    alike = [] if request.model or foreign.value("model") else matching_zoo_models(foreign)
    model = request.model or foreign.value("model") or (alike[0] if len(alike) == 1 else None)
    on = request.on or foreign.value("cluster")
    if model is None and not alike and config_from_sizes(foreign):
        model = OWN
    if model is None:
        several = f"are those of {', '.join(alike)}" if alike else "are those of none in the zoo"
        hint = f"--model {alike[0]}" if alike else "--model llama-3.1-8b, or a config.json"
        problems.append(Problem("model", None, f"the file names no model, and its sizes {several}", hint))
    if on is None:
        problems.append(Problem("on", None, "the file does not say the devices", "--on 'h100-sxm-80gb x 64'"))
    return {
        "model": model or "",
        "on": on or "",
        "stack": request.stack or foreign.value("stack", GENERIC),
    }


def _model(foreign: ImportedFile, name: str) -> tuple[Mapping[str, Any] | None, ModelGraph, list[Problem]]:
    """Return the model, its configuration if only the file describes it, and a remark on layers that it adds."""
    config = config_from_sizes(foreign) if name == OWN else None
    model = _described(config, OWN) if config else load_model(name)
    arch = model.architecture
    if not needs_multi_token_layers(foreign, arch):
        return config, model, []
    more = config_with_multi_token_layers(foreign, config or load_config(name), arch)
    remarks = [multi_token_problem(foreign, arch, made=more is not None)]
    return (config, model, remarks) if more is None else (more, _described(more, arch.name), remarks)


def _described(config: Mapping[str, Any], name: str) -> ModelGraph:
    """Return the model that only the file describes."""
    return build_graph(read_architecture(config, name, str(config["_source"])))


def _replicas(plan: ShortPlan | LongPlan | None) -> int:
    """Ranks that reduce gradients with each other."""
    if plan is None:
        return 1
    grid = plan.layout if isinstance(plan, ShortPlan) else next(iter(plan.layouts.values())).grid
    return grid.dp_replicate * grid.dp_shard * grid.cp


def renamed(problems: tuple[Problem, ...], foreign: ImportedFile | None) -> list[Problem]:
    """Rename the fields of problems to the words of the imported file."""
    if foreign is None:
        return list(problems)
    return [replace(p, field=foreign.words(p.field).split(" ")[0]) for p in problems]
