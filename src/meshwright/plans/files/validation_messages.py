"""Turn validation errors of a plan's types into messages with the plan file's keys and a suggestion."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, get_args, get_origin

from pydantic import ValidationError

from meshwright.errors import InputError, Problem, near_names, nearest
from meshwright.plans.files.meshwright_file import with_empty_keys
from meshwright.plans.files.strict_types import Strict
from meshwright.plans.files.task_keys import foreign_key
from meshwright.plans.forms.long import LATER, NOT_YET, Layout, LongPlan, Pipeline
from meshwright.plans.forms.short import ShortPlan
from meshwright.units import count_in_k

P = TypeVar("P", bound=Strict)

EXAMPLES = {
    "plan": "plan: 1",
    "model": "model: llama-3.1-8b",
    "cluster": "cluster: h100-sxm-80gb x 64",
    "workload": "workload: {seq_len: 8192, global_batch: 512}",
    "stack": "stack: megatron-core",
    "task": "task: serve",
    "input_tokens": "input_tokens: 1000",
    "output_tokens": "output_tokens: 1000",
    "share": "share: 0.5",
    "lengths": "lengths: [{input_tokens: 1000, output_tokens: 1000, share: 1.0}]",
    "prefill": "prefill: {tp: 8}",
    "decode": "decode: {tp: 8}",
    "batching": "batching: {max_sequences: 64}",
    "quantise": "quantise: {weights: fp8}",
    "objectives": "objectives: {ttft_ms: 2000, tpot_ms: 50}",
    "seq_len": "seq_len: 8192",
    "global_batch": "global_batch: 512",
    "layers": "layers: {embed: {layout: main}, 0..31: {layout: main}, head: {layout: main}}",
    "pipeline": "pipeline: {placement: [0], schedule: {name: 1f1b}}",
    "placement": "placement: [0]",
    "schedule": "schedule: {name: 1f1b}",
    "order": "order: [tp, cp, dp_shard, dp_replicate, pp]",
    "layout": "layout: main",
    "layouts": "layouts: {main: {grid: {dp_shard: 8}, order: [tp, cp, dp_shard, dp_replicate, pp]}}",
    "offload": "offload: {activations: 0.5}",
    "activations": "activations: 0.5",
    "context": "context: ring+ulysses4",
    "factor": "factor: 1.25",
    "encoder_tokens": "encoder_tokens: 512",
    "images": "images: {per_sequence: 1, tokens: 1024}",
    "per_sequence": "per_sequence: 1",
    "tokens": "tokens: 1024",
    "policy": "policy: hdp",
    "capacity_tokens": "capacity_tokens: 8192",
    "runs": "runs: 3",
    "sigma": "sigma: 0.08",
    "synchronise": "synchronise: [{state: parameter, over: dp_replicate, every: 100}]",
    "state": "state: gradient",
    "over": "over: dp_shard",
    "base": "base: 4",
    "alpha": "alpha: 0.0175",
    "budget": "budget: 4",
    "chunk": "chunk: 64",
    "rank": "rank: 2",
    "keep": "keep: 8",
    "width": "width: 0.1",
    "lr": "lr: 0.7",
    "does": "does: train",
    "from": "from: train",
    "to": "to: generate",
    "carry": "carry: weights",
    "pools": "pools: [{device: h100-sxm-80gb, count: 64}]",
    "tiers": "tiers: [{name: pod, devices: 128, oversubscription: 4}]",
    "count": "count: 64",
    "device": "device: h100-sxm-80gb",
    "pairs": "pairs: routing-pairs.csv",
    "name": "name: pod",
    "devices": "devices: 128",
    "oversubscription": "oversubscription: 4",
    "links": "links: {pairs: [{nodes: [0, 1], relative: 0.5}]}",
    "nodes": "nodes: [0, 1]",
    "nic_gbit_per_s_per_node": "nic_gbit_per_s_per_node: 3200",
    "value": "value: 2.5",
    "peak_tflops": "peak_tflops: {bf16: 989.4}",
    "stages": "stages: balanced",
    "recompute": "recompute: full",
}
"""A line for a key that must be there, or must be a mapping or a list."""
TYPES = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping of keys to values",
    "model_type": "must be a mapping of keys to values",
    "model_attributes_type": "must be a mapping of keys to values",
    "missing": "is required",
    "extra_forbidden": "unknown key",
}
KEYS_OF_A_NAME = ("name", "file", "sha256", "lists")
"""What a mapping says that may also be a name: its name, or what stands for one."""
Facts = Mapping[str, Any]
LONG_SECTIONS: Mapping[tuple[str | int, ...], type[Strict]] = {
    (): LongPlan,
    ("layout",): Layout,
    ("pipeline",): Pipeline,
}
"""The section of the long form that corresponds to a section of the short form."""


def validated(
    kind: type[P],
    data: Mapping[str, object],
    required: Mapping[str, str] | None = None,
    others: Sequence[Problem] = (),
) -> P:
    """Return ``data`` as a ``kind``. Raise InputError with every problem at once.

    ``required`` are dotted keys that must be there although the type has a default, each with an example; ``others``
    are problems that were found while ``data`` was read.
    """
    found: list[Facts] = [
        {"type": "missing", "loc": tuple(key.split(".")), "example": example}
        for key, example in (required or {}).items()
        if _is_absent(data, key.split("."))
    ]
    plan = None
    try:
        plan = kind.model_validate(data)
    except ValidationError as error:
        found += error.errors(include_url=False)
    if plan is None or found or others:
        wrong = [_problem(kind, facts) for facts in _causes(kind, found)]
        raise InputError(with_empty_keys(others, wrong)) from None
    return plan


def _is_absent(data: Mapping[str, object], path: Sequence[str]) -> bool:
    head, *rest = path
    inner = data.get(head)
    return head not in data or (bool(rest) and isinstance(inner, Mapping) and _is_absent(inner, rest))


def sections(kind: type[Strict]) -> dict[str, str]:
    """Where every scalar key of a plan lies: ``{"tp": "layout.tp", "sharding": "sharding", …}``.

    Of two keys with one name the first has it; the other one is there under its path. Keys of a list's items have no
    such place.
    """
    found: dict[str, str] = {}
    for name, field in kind.model_fields.items():
        inner = _strict_in(field.annotation)
        if inner is None or inner is not field.annotation:
            found[name] = name
        if inner is not None and not _is_container(field.annotation):
            below = {key: f"{name}.{path}" for key, path in sections(inner).items()}
            for key, path in below.items():
                if key not in KEYS_OF_A_NAME:
                    found[path if key in found else key] = path
    return found


def _causes(kind: type[Strict], found: Sequence[Facts]) -> list[Facts]:
    """Return the errors that do not follow from another one.

    A list whose entries are wrong counts as empty, a key that is misspelled as missing.
    """
    unknown = [_path(facts) for facts in found if facts["type"] == "extra_forbidden"]
    meant = [[*path[:-1], key] for path in unknown for key in _meant_keys(kind, path)]
    return [
        facts
        for facts in found
        if not (facts["type"] == "too_short" and _has_inner_error(facts["loc"], found))
        and not (facts["type"] == "missing" and _path(facts) in meant)
    ]


def _meant_keys(kind: type[Strict], path: Sequence[str | int]) -> list[str]:
    """Return the key that an unknown one is a misspelling of, if any."""
    key = str(path[-1])
    if _is_long_key(kind, path) or _is_deeper_key(kind, path) or foreign_key(kind, path):
        return []
    return near_names(key, _keys(_type_at(kind, path[:-1])))[:1]


def _has_inner_error(place: Sequence[str | int], found: Sequence[Facts]) -> bool:
    return any(len(facts["loc"]) > len(place) and facts["loc"][: len(place)] == place for facts in found)


def _problem(kind: type[Strict], facts: Facts) -> Problem:
    path = _path(facts)
    value = None if facts["type"] == "missing" else facts["input"]
    suggest = SUGGESTIONS.get(facts["type"])
    suggestion = suggest(kind, path, facts) if suggest else _for_shape(kind, path, facts)
    rule = _rule(facts)
    if facts["type"] == "extra_forbidden":
        foreign = foreign_key(kind, path)
        if _is_long_key(kind, path):
            rule = NOT_YET if path[-1] in LATER else "belongs to the long form of a plan"
        elif foreign is not None:
            rule, suggestion = foreign
    return Problem(".".join(map(str, path)), value, rule, suggestion)


def _is_long_key(kind: type[Strict], path: Sequence[str | int]) -> bool:
    """Return whether an unknown key of a short plan is one of the long form."""
    section = LONG_SECTIONS.get(tuple(path[:-1])) if kind is ShortPlan else None
    return section is not None and str(path[-1]) in section.model_fields


def _is_deeper_key(kind: type[Strict], path: Sequence[str | int]) -> bool:
    """Return whether an unknown top-level key of a short plan is one of a section."""
    return len(path) == 1 and kind is ShortPlan and str(path[-1]) in sections(kind)


def _path(facts: Facts) -> list[str | int]:
    """Return the place in the file: pydantic's, without the names of union branches and its mark for keys."""
    place = list(facts["loc"])
    last = [place.pop()] if facts["type"] in ("missing", "extra_forbidden") else []
    return [
        part for part in place if part not in ("<name>", "<list>", "<mapping>", "<number>", "[key]")
    ] + last


def _rule(facts: Facts) -> str:
    context = facts.get("ctx", {})
    match facts["type"]:
        case "literal_error":
            return f"must be {context['expected']}"
        case "greater_than_equal":
            return f"must be at least {context['ge']}"
        case "greater_than":
            return f"must be more than {context['gt']}"
        case "less_than_equal":
            return f"must be at most {context['le']}"
        case "too_short":
            return "must not be empty"
    return TYPES.get(facts["type"]) or str(facts["msg"])


def _for_unknown(kind: type[Strict], path: Sequence[str | int], facts: Facts) -> str:
    key = str(path[-1])
    if _is_long_key(kind, path):
        return "take it out" if key in LATER else "`meshwright describe PLAN --long` shows the long form"
    if _is_deeper_key(kind, path):
        return f"did you mean {sections(kind)[key]}?"
    return nearest(key, _keys(_type_at(kind, path[:-1])))


def _for_missing(kind: type[Strict], path: Sequence[str | int], facts: Facts) -> str:
    key = str(path[-1])
    return f"add `{facts.get('example') or _examples(kind).get(key, key)}`"


def _list_example(kind: type[Strict], path: Sequence[str | int]) -> str:
    """Return an example line for the list at ``path``, or that has the item there; empty if there is none."""
    *_, key = (str(part) for part in path if isinstance(part, str))
    example = _examples(kind).get(key, "")
    return f"write `{example}`" if f"{key}: [" in example else ""


def _for_shape(kind: type[Strict], path: Sequence[str | int], facts: Facts) -> str:
    """Return an example line for the innermost key that has one; else the keys of the mapping."""
    if isinstance(path[-1], int) and (example := _list_example(kind, path)):
        return example
    examples = _examples(kind)
    known = [examples[str(part)] for part in reversed(path) if str(part) in examples]
    inside = ", ".join(f"{key}: …" for key in _keys(_type_at(kind, path))[:3])
    return (
        f"write `{known[0]}`" if known and str(path[-1]) in examples else f"write `{path[-1]}: {{{inside}}}`"
    )


def _for_literal(kind: type[Strict], path: Sequence[str | int], facts: Facts) -> str:
    expected = re.findall(r"'([^']*)'", facts["ctx"]["expected"])
    return nearest(str(facts["input"]), expected) if expected else f"write {facts['ctx']['expected']}"


def _for_number(kind: type[Strict], path: Sequence[str | int], facts: Facts) -> str:
    if isinstance(facts["input"], bool):
        return "write a number, e.g. 4"
    in_k = count_in_k(str(facts["input"]))
    if in_k is not None:
        return f"write {in_k}"
    try:
        return f"write {int(facts['input'])}"
    except (TypeError, ValueError, OverflowError):
        return "write a number, e.g. 4"


def _for_bool(kind: type[Strict], path: Sequence[str | int], facts: Facts) -> str:
    return f"write {'false' if facts['input'] in ('no', 'off', 'false', 0) else 'true'}"


SUGGESTIONS: dict[str, Callable[[type[Strict], Sequence[str | int], Facts], str]] = {
    "extra_forbidden": _for_unknown,
    "missing": _for_missing,
    "literal_error": _for_literal,
    "int_type": _for_number,
    "int_from_float": _for_number,
    "float_type": _for_number,
    "bool_type": _for_bool,
    "string_type": lambda kind, path, facts: "write a name; quote it if it looks like a number",
    "string_pattern_mismatch": lambda kind, path, facts: "letters, digits and _ . + - only: fast-1",
    "string_too_long": lambda kind, path, facts: f"at most {facts['ctx']['max_length']} characters",
    "too_long": lambda kind, path, facts: f"at most {facts['ctx']['max_length']} entries",
    "tuple_type": lambda kind, path, facts: _list_example(kind, path) or "write [a, b]",
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type", "too_short"), _for_shape),
    "finite_number": _for_number,
    "greater_than": lambda kind, path, facts: (
        f"write more than {facts['ctx']['gt']}, such as {facts['ctx']['gt'] + 1}"
    ),
    "greater_than_equal": lambda kind, path, facts: f"write {facts['ctx']['ge']}",
    "less_than_equal": lambda kind, path, facts: f"write at most {facts['ctx']['le']}",
}


def _examples(kind: type[Strict]) -> Mapping[str, str]:
    return {**EXAMPLES, **kind.examples}


def _keys(kind: type[Strict]) -> list[str]:
    return [field.alias or name for name, field in kind.model_fields.items()]


def _type_at(kind: type[Strict], path: Sequence[str | int]) -> type[Strict]:
    """Return the type of the mapping at ``path``, through fields, keys of mappings and places in lists."""
    rest = list(path)
    while rest:
        field = kind.model_fields.get(str(rest.pop(0)))
        inner = None if field is None else _strict_in(field.annotation)
        if field is None or inner is None:
            return kind
        if _is_container(field.annotation) and rest:
            rest.pop(0)
        kind = inner
    return kind


def _strict_in(annotation: Any) -> type[Strict] | None:
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        return annotation
    return next(filter(None, map(_strict_in, get_args(annotation))), None)


def _is_container(annotation: Any) -> bool:
    return get_origin(annotation) in (dict, tuple) or any(map(_is_container, get_args(annotation)))
