"""Read and check the questions of a browser: fixed JSON keys, names of the catalogue, texts instead of files.

A model is a name of the catalogue or the text of its configuration; a cluster is its short form or the text of its
file. Paths and hub ids are refused, in options too, so that no question reads a file of the host or asks another host.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from meshwright.cluster.load import CLUSTER
from meshwright.errors import InputError, Problem, nearest
from meshwright.frameworks.export_targets import TARGET_NAMES
from meshwright.launchers import LAUNCHERS
from meshwright.model.zoo_names import zoo_name, zoo_names
from meshwright.plans.files.meshwright_file import read_keys
from meshwright.plans.files.yaml_text import read_mapping
from meshwright.stack.load import stack_names

MOST_TEXT = 2**18
"""Characters of a pasted model, cluster or plan."""
FILE_KEYS = ("file", "pairs", "files")
"""Keys of a plan that name a file."""
NOT_SET = ("model", "cluster", "stack", "workload.routing", "layout.expert_order")
"""Settings that could name a file."""
FILE_ENDINGS = (".csv", ".yaml", ".yml", ".json", ".txt", ".gz", ".npz")
Words = Annotated[str, Field(max_length=200)]
Text = Annotated[str, Field(max_length=MOST_TEXT)]
List = Annotated[tuple[Words, ...], Field(max_length=50)]
Number = Annotated[float, Field(ge=0, le=1e18)]
Count = Annotated[int, Field(ge=1, le=2**31)]


class Question(BaseModel):
    """A question of any verb."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Images(Question):
    """Images of each sequence, and patches of one."""

    per_sequence: Count
    tokens: Count


class PlanQuestion(Question):
    """A question of ``plan``; the names are its options."""

    model: Text
    on: Text
    seq_len: Count
    global_batch: Count
    stack: Words = "megatron-core"
    precision: Words = "bf16"
    task: Words = "pretrain"
    optimizer: Words = "adamw"
    encoder_tokens: Count | None = None
    images: Images | None = None
    objective: Words = "throughput"
    tokens: Words | None = None
    budget: Number | None = None
    deadline: Number | None = None
    power: Number | None = None
    sure: Number | None = None
    keep: List = ()
    forbid: List = ()
    assume: List = ()
    schedule: Words | None = None
    stages: Words = "balanced"
    layers: Literal["auto", "uniform", "ranges"] = "auto"
    recommend: Literal["robust", "fastest"] = "robust"
    price: Words = "on-demand"
    top: Annotated[int, Field(ge=1, le=20)] = 5


class PredictQuestion(Question):
    """A question of ``predict``: a plan, settings that change it, and factors of rates of its cluster by name."""

    plan: Text | dict[str, Any]
    set: List = ()
    tokens: Words | None = None
    assume: List = ()
    price: Words = "on-demand"
    rates: dict[Words, Annotated[float, Field(ge=0.01, le=100)]] = {}


class ExplainQuestion(Question):
    """A question of ``explain``."""

    plan: Text | dict[str, Any]
    against: Text | dict[str, Any] | None = None


class CheckQuestion(Question):
    """A question of ``check``: the text of a plan or of another framework's file."""

    text: Text
    model: Text | None = None
    on: Text | None = None
    seq_len: Count | None = None
    global_batch: Count | None = None
    stack: Words | None = None
    source: Annotated[Words | None, Field(alias="from")] = None


class ExportQuestion(Question):
    """A question of ``export``."""

    plan: Text | dict[str, Any]
    to: Words
    launcher: Words = "sbatch"


class ReportQuestion(Question):
    """A question of ``report``."""

    plan: Text | dict[str, Any]
    against: Annotated[tuple[Text | dict[str, Any], ...], Field(max_length=4)] = ()
    tokens: Words | None = None
    assume: List = ()
    price: Words = "on-demand"
    search: bool = True


QUESTIONS: dict[str, type[Question]] = {
    "plan": PlanQuestion,
    "predict": PredictQuestion,
    "explain": ExplainQuestion,
    "check": CheckQuestion,
    "export": ExportQuestion,
    "report": ReportQuestion,
}
"""The verbs that are answered, with the form of their questions."""


def read_question(verb: str, body: bytes) -> Question:
    """Return the question of a request's body, with pasted texts as one line of JSON. Raises InputError."""
    try:
        data = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(
            Problem("body", None, f"is no JSON: {error}", '{"model": "llama-3.1-8b", …}')
        ) from None
    if not isinstance(data, dict):
        raise InputError(Problem("body", None, "is no JSON object", '{"model": "llama-3.1-8b", …}'))
    try:
        question = QUESTIONS[verb].model_validate(data)
    except ValidationError as error:
        raise InputError(_problems(verb, error)) from None
    return question.model_copy(update=_read_names(question))


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not finite")


def _problems(verb: str, error: ValidationError) -> Iterator[Problem]:
    known = [field.alias or name for name, field in QUESTIONS[verb].model_fields.items()]
    for one in error.errors(include_url=False, include_context=False):
        path = [str(part) for part in one["loc"]]
        value = one["input"] if isinstance(one["input"], str | int | float | bool) else None
        if one["type"] == "extra_forbidden":
            yield Problem(".".join(path), value, "is no key of this question", nearest(path[-1], known))
        else:
            rule = one["msg"][:1].lower() + one["msg"][1:]
            shown = value[:100] if isinstance(value, str) else value
            yield Problem(
                ".".join(path), shown, rule, f"a value of {path[0]} as `meshwright {verb}` takes it"
            )


def _read_names(question: Question) -> dict[str, Any]:
    """Return the names and texts of a question as verbs take them. Raise InputError with all problems."""
    problems: list[Problem] = []
    read: dict[str, Any] = {}
    for name, reader in READERS.items():
        value = getattr(question, name, None)
        if value:
            try:
                read[name] = reader(name, value)
            except InputError as error:
                problems += error.problems
    if problems:
        raise InputError(problems)
    return read


def model_name(field: str, name: str) -> str:
    """Return a model of the catalogue, or a pasted configuration as one line. Raises InputError."""
    if name.lstrip().startswith("{"):
        return _one_line(field, name)
    known = zoo_name(name) or (name if name in zoo_names() else None)
    if known is None:
        rule = "is no model of the catalogue; paths and hub ids are not taken here"
        raise InputError(
            Problem(field, name[:100], rule, nearest(name, zoo_names()) or "paste its config.json")
        )
    return known


def cluster_name(field: str, text: str) -> str:
    """Return a cluster in short form, or a pasted cluster file as one line of JSON. Raises InputError."""
    if text.lstrip().startswith("{"):
        return _one_line(field, text)
    if "\n" in text.strip():
        problems: list[Problem] = []
        data = read_keys(text, field, CLUSTER, problems)
        if problems:
            raise InputError(problems)
        return json.dumps(data)
    _refuse_path(field, text)
    return text.strip()


def plan_data(field: str, plan: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return a plan as data whose names are safe. Raises InputError."""
    data = read_mapping(plan, field) if isinstance(plan, str) else plan
    if not isinstance(data, Mapping):
        raise InputError(Problem(field, None, "is no plan", "the keys of a plan file"))
    problems = list(_named_files(field, data))
    found = dict(data)
    for name, reader in (("model", model_name), ("cluster", cluster_name), ("stack", stack_name)):
        if isinstance(found.get(name), str):
            try:
                found[name] = reader(f"{field}.{name}", found[name])
            except InputError as error:
                problems += error.problems
    if problems:
        raise InputError(problems)
    return found


def stack_name(field: str, name: str) -> str:
    """Return a stack of the catalogue, with its release if it has one. Raises InputError."""
    if name.partition("@")[0] not in stack_names():
        raise InputError(Problem(field, name, "is no stack of the catalogue", nearest(name, stack_names())))
    return name


def _one_line(field: str, text: str) -> str:
    try:
        return json.dumps(json.loads(text, parse_constant=_refuse_constant))
    except (ValueError, RecursionError) as error:
        raise InputError(Problem(field, None, f"is no JSON: {error}", "the text of a config.json")) from None


def _named_files(field: str, data: object, path: tuple[str, ...] = ()) -> Iterator[Problem]:
    """Yield the keys of a plan that name a file."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            where = (*path, str(key))
            names_file = str(key) in FILE_KEYS or (
                str(key) in ("expert_order", "routing") and isinstance(value, str) and _is_path(value)
            )
            if names_file:
                rule = "names a file, and files are not read here"
                yield Problem(".".join((field, *where)), str(value)[:100], rule, "the command line")
            yield from _named_files(field, value, where)
    elif isinstance(data, list | tuple):
        for at, value in enumerate(data):
            yield from _named_files(field, value, (*path, str(at)))


def _is_path(text: str) -> bool:
    return "/" in text or "\\" in text or text.strip().lower().endswith(FILE_ENDINGS)


def _refuse_path(field: str, text: str) -> None:
    if _is_path(text):
        rule = "looks like a path, and files are not read here"
        raise InputError(Problem(field, text[:100], rule, "h100-sxm-80gb x 64, or paste the cluster file"))


def _options(field: str, values: tuple[str, ...]) -> tuple[str, ...]:
    """Return options of the form NAME=VALUE. Raise InputError for one that names a file."""
    for at, value in enumerate(values):
        name = value.partition("=")[0].strip()
        if _is_path(value) or name in NOT_SET:
            rule = "could name a file, and files are not read here"
            raise InputError(Problem(f"{field}.{at}", value, rule, "a name and its value: tp=4"))
    return values


def _word(field: str, text: str) -> str:
    _refuse_path(field, text)
    return text


def _plans(field: str, plans: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(plan_data(f"{field}.{at}", plan) for at, plan in enumerate(plans))


def _against(field: str, plan: Any) -> Any:
    """Return the plan, or those, that a plan is compared with."""
    if plan == "recommended":
        return plan
    return _plans(field, plan) if isinstance(plan, tuple) else plan_data(field, plan)


def _one_of(names: Any) -> Any:
    def reader(field: str, name: str) -> str:
        if name not in names:
            raise InputError(Problem(field, name, "is not known", nearest(name, list(names))))
        return name

    return reader


READERS: dict[str, Any] = {
    "model": model_name,
    "on": cluster_name,
    "plan": plan_data,
    "against": _against,
    "stack": stack_name,
    "set": _options,
    "keep": _options,
    "forbid": _options,
    "assume": _options,
    "schedule": _word,
    "optimizer": _word,
    "to": _one_of(TARGET_NAMES),
    "launcher": _one_of(LAUNCHERS),
}
"""How the fields of questions that could name something outside of them are read."""
