"""The assignment of rules to layers and of layers to stages.

Keys are ``embed``, ``head``, a layer ``5`` or an inclusive range ``0..57``; of several rules for a layer the
first wins. Stages are written out (``[[embed, 0..7], [8..15, head]]``) or balanced. Balanced over K stages,
each gets ⌊L/K⌋ of the L layers and the L mod K others go to the middle stages first, then to the first stage
and never to the last: the first holds the embedding and the most micro-batches in flight, the last the head
and the loss. Where a schedule's stages form several chains, each of them holds the whole model, cut in the same way:
K is the number of stages of one chain, and a written list is that of one chain.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from meshwright.errors import Problem, nearest
from meshwright.plans.forms.long import LayerRule, LongPlan, Pipeline

_RANGE = re.compile(r"([0-9]{1,9})(?:\.\.([0-9]{1,9}))?")


@dataclass(frozen=True, slots=True)
class LayerRules:
    """The rule of every layer, of ``embed`` and of ``head``; None where no rule says anything."""

    embed: LayerRule | None
    layers: tuple[LayerRule | None, ...]
    head: LayerRule | None
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class StageLayers:
    """The content of one stage: decoder layers ``first`` to ``last`` exclusive, perhaps embedding and head."""

    first: int
    last: int
    embed: bool = False
    head: bool = False

    @property
    def count(self) -> int:
        """Number of decoder layers."""
        return self.last - self.first


def parse_layer_key(key: str, layers: int) -> range | None:
    """Return the positions of a key: embed −1, layer i at i, head at ``layers``; None for another text."""
    if key in ("embed", "head"):
        return range(-1, 0) if key == "embed" else range(layers, layers + 1)
    match = _RANGE.fullmatch(key)
    if match is None or not key.isascii():
        return None
    first = int(match[1])
    return range(first, int(match[2] or first) + 1)


def layer_rules(plan: LongPlan, layers: int) -> LayerRules:
    """Return the rule that each of ``layers`` layers gets, with every problem of the keys."""
    rules: dict[int, LayerRule] = {}
    problems: list[Problem] = []
    for key, rule in plan.layers.items():
        field = f"layers.{key}"
        if rule.layout not in plan.layouts:
            near = nearest(rule.layout, plan.layouts)
            problems.append(Problem(f"{field}.layout", rule.layout, "there is no such layout", near))
        wrong = _key_problem(field, key, layers)
        if wrong:
            problems.append(wrong)
            continue
        new = [position for position in parse_layer_key(key, layers) or () if position not in rules]
        if not new:
            hint = "take it out, or put it first"
            problems.append(Problem(field, key, "earlier rules cover all of it", hint, "warning"))
        rules |= dict.fromkeys(new, rule)
    problems += _gaps(rules, layers, next(iter(plan.layouts), "main"))
    every = tuple(rules.get(position) for position in range(layers))
    return LayerRules(rules.get(-1), every, rules.get(layers), tuple(problems))


def balanced_counts(layers: int, stages: int) -> tuple[int, ...]:
    """Layers per stage: ⌊layers/stages⌋ each, one more for as many as needed, from the middle outwards."""
    base, extra = divmod(layers, stages)
    last = stages - 1
    order = sorted(range(stages), key=lambda s: (s == last, s == 0, abs(2 * s - last), -s))
    more = set(order[:extra])
    return tuple(base + (stage in more) for stage in range(stages))


def stage_layers(pipeline: Pipeline, layers: int) -> tuple[StageLayers, ...]:
    """Return the layers of every stage, chain by chain. For a pipeline without ``stage_problems``."""
    return chain_layers(pipeline, layers) * pipeline.chains


def chain_layers(pipeline: Pipeline, layers: int) -> tuple[StageLayers, ...]:
    """Return the layers of every stage of one chain."""
    if pipeline.stages != "balanced":
        return tuple(_stage(stage, layers) for stage in pipeline.stages)
    return balanced_stages(layers, len(pipeline.placement) // pipeline.chains)


@lru_cache(maxsize=1024)
def balanced_stages(layers: int, stages: int) -> tuple[StageLayers, ...]:
    """Return the layers of every stage of a balanced chain."""
    counts = balanced_counts(layers, stages)
    starts = [sum(counts[:stage]) for stage in range(len(counts))]
    last = len(counts) - 1
    return tuple(
        StageLayers(start, start + count, embed=stage == 0, head=stage == last)
        for stage, (start, count) in enumerate(zip(starts, counts, strict=True))
    )


def stage_problems(pipeline: Pipeline, layers: int) -> list[Problem]:
    """Return the problems of the stages: too many, empty, layers missing, repeated or out of order."""
    stages, rest = divmod(len(pipeline.placement), pipeline.chains)
    if rest:
        rule = f"the stages form {pipeline.chains} chains of equal length"
        hint = f"a placement of {(stages + 1) * pipeline.chains} stages"
        return [Problem("pipeline.placement", len(pipeline.placement), rule, hint)]
    if pipeline.stages == "balanced":
        return _too_many(pipeline, stages, layers) if stages > layers else []
    problems = []
    if len(pipeline.stages) != stages:
        named = f"{len(pipeline.placement)}" + (f", {stages} in each chain" if pipeline.chains > 1 else "")
        rule = f"{len(pipeline.stages)} stages, but placement names {named}"
        hint = f"write {stages} stages or a placement of {len(pipeline.stages) * pipeline.chains}"
        problems.append(Problem("pipeline.stages", len(pipeline.stages), rule, hint))
    return problems + _order_problems(pipeline.stages, layers)


def _too_many(pipeline: Pipeline, stages: int, layers: int) -> list[Problem]:
    """More stages in a chain than layers."""
    chains = pipeline.chains
    count = "pp·virtual_stages" + (f" / {chains}" if chains > 1 else "")
    rule = f"{count} = {stages} stages > {layers} layers"
    ranks = min(pipeline.ranks, max(chains, layers // chains * chains))
    hint = f"pp: {ranks}, virtual_stages: {max(chains, chains * layers // pipeline.ranks)}"
    return [Problem("pipeline.virtual_stages", stages, rule, hint)]


def _key_problem(field: str, key: str, layers: int) -> Problem | None:
    positions = parse_layer_key(key, layers)
    legal = f"embed, head, 0..{layers - 1} or a single layer"
    if positions is None:
        return Problem(field, key, "is no layer or range of layers", legal)
    if not positions:
        return Problem(field, key, "the range ends before it begins", f"the smaller number first; {legal}")
    if key not in ("embed", "head") and positions[-1] >= layers:
        return Problem(field, key, f"the model has {layers} layers, 0..{layers - 1}", legal)
    return None


def _gaps(rules: Mapping[int, LayerRule], layers: int, layout: str) -> list[Problem]:
    """One problem for every run of positions without a rule; embed and head are runs of their own."""
    missing = [position for position in range(-1, layers + 1) if position not in rules]
    runs: dict[tuple[bool, bool, int], list[int]] = {}
    for index, position in enumerate(missing):
        runs.setdefault((position == -1, position == layers, position - index), []).append(position)
    return [_gap(run[0], run[-1], layers, layout) for run in runs.values()]


def _gap(first: int, last: int, layers: int, layout: str) -> Problem:
    name = _name(first, last, layers)
    return Problem("layers", None, f"no rule for {name}", f"add `{name}: {{layout: {layout}}}`")


def _name(first: int, last: int, layers: int) -> str:
    if first == -1 or first == layers:
        return "embed" if first == -1 else "head"
    return str(first) if first == last else f"{first}..{last}"


def _order_problems(stages: tuple[tuple[str, ...], ...], layers: int) -> list[Problem]:
    """Report every entry that is out of the order embed, 0 … L−1, head."""
    problems = []
    due = -1
    for index, stage in enumerate(stages):
        field = f"pipeline.stages.{index}"
        if not stage:
            problems.append(
                Problem(field, stage, "an empty stage", "take it out, and its rank out of placement")
            )
        for key in stage:
            wrong = _key_problem(field, key, layers)
            positions = parse_layer_key(key, layers)
            if wrong or not positions:
                return [*problems, wrong] if wrong else problems
            if positions[0] != due:
                expected = "nothing" if due > layers else _name(due, due, layers)
                rule = f"{expected} comes next: every layer once, in order"
                return [*problems, Problem(field, key, rule, f"begin with {expected} here")]
            due = positions[-1] + 1
    if due <= layers:
        name, rest = (
            _name(due, due, layers),
            [] if due == layers else [_name(max(due, 0), layers - 1, layers)],
        )
        missing = [*(["embed"] if due == -1 else []), *rest, "head"]
        rule, hint = (
            f"{name} and what follows are in no stage",
            f"end the last stage with {', '.join(missing)}",
        )
        problems.append(Problem("pipeline.stages", None, rule, hint))
    return problems


def _stage(keys: tuple[str, ...], layers: int) -> StageLayers:
    positions = [position for key in keys for position in parse_layer_key(key, layers) or ()]
    inner = [position for position in positions if 0 <= position < layers]
    first = inner[0] if inner else min(max(positions[0], 0), layers)
    return StageLayers(first, first + len(inner), embed=-1 in positions, head=layers in positions)
