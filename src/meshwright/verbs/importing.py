"""Import another framework's file: what it says, with a model and a cluster, as a plan that we would accept or not."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from meshwright.cluster.graph import Cluster
from meshwright.cluster.load import load_cluster
from meshwright.errors import InputError, Problem
from meshwright.import_.assemble import Target, assemble
from meshwright.import_.foreign import Foreign
from meshwright.import_.formats import read_foreign
from meshwright.import_.model_facts import differences, zoo_models
from meshwright.import_.next_token_model import asks_for_more, config_with_more, said_of_more
from meshwright.import_.own_model import config_text, own_config
from meshwright.import_.stack_facts import changed_stack, stack_text
from meshwright.model.blocks import build_graph
from meshwright.model.families import read_architecture
from meshwright.model.graph import ModelGraph
from meshwright.model.load import load_config, load_model
from meshwright.plan.files import dump_plan
from meshwright.plan.long import LongPlan
from meshwright.plan.short import ShortPlan
from meshwright.stack.load import load_stack
from meshwright.stack.stack import Stack

GENERIC = "generic"
OWN = "own-model"
"""What a model is called that only the file describes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What stands beside the file: names as the command line has them; None leaves it to the file."""

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

    foreign: Foreign
    plan: ShortPlan | LongPlan | None
    model: ModelGraph
    cluster: Cluster
    stack: Stack
    own_stack: bool
    own_model: Mapping[str, Any] | None
    problems: tuple[Problem, ...]

    def beside(self, stem: str) -> dict[str, str]:
        """Files that the plan names: the model that only the file describes, the framework as the file runs it."""
        stack = {f"{stem}-stack.yaml": stack_text(self.stack)} if self.own_stack else {}
        return stack | ({f"{stem}-model.json": config_text(dict(self.own_model))} if self.own_model else {})

    def plan_for(self, stem: str) -> ShortPlan | LongPlan:
        """The plan, naming the files that lie beside it."""
        assert self.plan is not None
        names = {"stack": f"{stem}-stack.yaml"} if self.own_stack else {}
        names |= {"model": f"{stem}-model.json"} if self.own_model else {}
        return self.plan.model_copy(update=names)

    def to_json(self, stem: str) -> dict[str, Any]:
        """The public form: the plan, files that lie beside it (their names begin with ``stem``), what was not read."""
        return {
            "source": self.foreign.source,
            "release": self.foreign.release,
            "plan": self.plan_for(stem).to_data() if self.plan else None,
            "plan_text": dump_plan(self.plan_for(stem), self.notes()) if self.plan else None,
            "beside": self.beside(stem),
            "unread": [{"key": u.key, "value": u.value, "why": u.why} for u in self.foreign.unread],
            "problems": [problem.to_json() for problem in self.problems],
        }

    def notes(self) -> dict[str, str]:
        """What in the file says so, by the path of the plan; a short plan carries it as comments."""
        if not isinstance(self.plan, ShortPlan):
            return {}
        return {path: fact.words for path, fact in self.foreign.facts.items() if fact.words}


def import_text(text: str, wanted: Wanted) -> Imported:
    """Read a file. Raises InputError where it, the model or the cluster can not be read at all."""
    foreign = read_foreign(text, wanted.source, wanted.variables)
    problems: list[Problem] = []
    names = _names(foreign, wanted, problems)
    if problems:
        raise InputError([*foreign.problems, *problems])
    config, model, found = _model(foreign, names["model"])
    cluster = load_cluster(names["on"])
    stack = load_stack(names["stack"])
    if len(cluster.pools) != 1:
        raise InputError(Problem("on", names["on"], "a file of this kind uses equal devices", "one pool"))
    target = Target(
        model=names["model"],
        cluster=names["on"],
        stack=names["stack"],
        devices=cluster.devices,
        seq_len=wanted.seq_len,
        global_batch=wanted.global_batch,
    )
    plan, more = assemble(foreign, target, model.architecture)
    found += more
    if plan is not None and "recompute" not in foreign.facts:
        rule = "the file does not say whether layers are recomputed: read as none"
        hint = "recompute: full in the plan, if the training script does"
        found.append(Problem("recompute", None, rule, hint, "warning"))
    changed = changed_stack(foreign, stack, dp=_replicas(plan))
    all_problems = (*foreign.problems, *differences(foreign, model.architecture), *found)
    if any(problem.severity == "error" for problem in all_problems):
        plan = None
    return Imported(foreign, plan, model, cluster, changed, changed != stack, config, all_problems)


def _names(foreign: Foreign, wanted: Wanted, problems: list[Problem]) -> dict[str, str]:
    """Model, cluster and stack by name: as asked, as the file says, or as its sizes betray."""
    alike = [] if wanted.model or foreign.value("model") else zoo_models(foreign)
    model = wanted.model or foreign.value("model") or (alike[0] if len(alike) == 1 else None)
    on = wanted.on or foreign.value("cluster")
    if model is None and not alike and own_config(foreign):
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
        "stack": wanted.stack or foreign.value("stack", GENERIC),
    }


def _model(foreign: Foreign, name: str) -> tuple[Mapping[str, Any] | None, ModelGraph, list[Problem]]:
    """The model, its configuration where only the file describes it, and a word on layers that it adds."""
    config = own_config(foreign) if name == OWN else None
    model = _described(config, OWN) if config else load_model(name)
    arch = model.architecture
    if not asks_for_more(foreign, arch):
        return config, model, []
    more = config_with_more(foreign, config or load_config(name), arch)
    said = [said_of_more(foreign, arch, made=more is not None)]
    return (config, model, said) if more is None else (more, _described(more, arch.name), said)


def _described(config: Mapping[str, Any], name: str) -> ModelGraph:
    """The model that only the file describes."""
    return build_graph(read_architecture(config, name, str(config["_source"])))


def _replicas(plan: ShortPlan | LongPlan | None) -> int:
    """Ranks that reduce gradients with each other."""
    if plan is None:
        return 1
    grid = plan.layout if isinstance(plan, ShortPlan) else next(iter(plan.layouts.values())).grid
    return grid.dp_replicate * grid.dp_shard * grid.cp


def renamed(problems: tuple[Problem, ...], foreign: Foreign | None) -> list[Problem]:
    """Problems of a plan's fields in the words of the file that said so."""
    if foreign is None:
        return list(problems)
    return [replace(p, field=foreign.words(p.field).split(" ")[0]) for p in problems]
