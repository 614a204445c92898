"""Read Megatron's options for multi-token prediction layers, and find the ones that Megatron refuses.

``--mtp-num-layers`` come behind ``--num-layers``; without a layout they are in the last stage. Source: megatron-core
0.19.2, ``training/arguments.py`` (``validate_args``), ``core/transformer/transformer_config.py``,
``core/transformer/pipeline_parallel_layer_layout.py`` (``validate_layer_layout``).
"""

from collections.abc import Iterator, Mapping

from meshwright.errors import Problem
from meshwright.frameworks.importing.command_line import CommandLine, GivenOption
from meshwright.frameworks.importing.imported_file import NEXT_LAYERS, NEXT_WEIGHT, Fact, Stage
from meshwright.frameworks.megatron import options as names

USUAL_WEIGHT = "0.1"
"""Megatron's λ where nobody says it."""
ROTARY = "--use-rotary-position-embeddings"
SAYABLE = ("rope", "none")


def next_token_facts(line: CommandLine, facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Return the number of such layers and λ; none if the model is described without them."""
    if names.MTP_LAYERS not in line:
        return {NEXT_LAYERS: Fact(0, f"{names.MTP_LAYERS} left out")} if "model.layers" in facts else {}
    count = 0 if line.get(names.MTP_LAYERS) == "0" else line.number(names.MTP_LAYERS)
    found = {} if count is None else {NEXT_LAYERS: line.fact(names.MTP_LAYERS, count)}
    if not count:
        return found
    weight = line.options.get(names.MTP_WEIGHT)
    words = weight.words if weight else f"{names.MTP_WEIGHT} left out: {USUAL_WEIGHT}"
    return found | weight_fact(line.get(names.MTP_WEIGHT, USUAL_WEIGHT), words, line.problems)


def weight_fact(text: str, words: str, problems: list[Problem]) -> dict[str, Fact]:
    """λ as a number above 0; a problem where it is none."""
    try:
        weight = float(text)
    except ValueError:
        weight = 0.0
    if 0 < weight < float("inf"):
        return {NEXT_WEIGHT: Fact(weight, words)}
    rule, hint = "how much the losses of further tokens count must be a number above 0", USUAL_WEIGHT
    problems.append(Problem(words.split(" ")[0], text[:80], rule, hint))
    return {}


def next_token_rules(line: CommandLine, facts: Mapping[str, Fact]) -> Iterator[Problem]:
    """Find multi-token prediction options that Megatron refuses, or runs elsewhere than the plan."""
    if names.LAYOUT in line:
        yield from layout_problems(line.options[names.LAYOUT], facts)
    count = facts[NEXT_LAYERS].value if NEXT_LAYERS in facts else 0
    kind = line.get(names.POSITIONS, "learned_absolute")
    described = names.POSITIONS in line or (names.HIDDEN in line and ROTARY not in line)
    if count and described and kind not in SAYABLE:
        yield Problem(
            names.POSITIONS,
            kind,
            f"{names.MTP_LAYERS} needs rotary positions, or none",
            f"{names.POSITIONS} rope",
        )
    if count > 1 and names.EXCHANGE_OVERLAP in line:
        rule = f"takes one layer for further tokens, {names.MTP_LAYERS} is {count}"
        yield Problem(names.EXCHANGE_OVERLAP, "on", rule, f"leave {names.EXCHANGE_OVERLAP} out")


def layout_problems(given: GivenOption, facts: Mapping[str, Fact]) -> Iterator[Problem]:
    """Find layouts that split these layers, or put them before another stage of the rank."""
    stages: tuple[Stage, ...] = facts["stages"].value if "stages" in facts else ()
    held, places = sum(stage.further for stage in stages), [i for i, s in enumerate(stages) if s.further]
    said, text = facts.get(NEXT_LAYERS), "".join(given.values[:1])
    pp = int(facts["layout.pp"].value) if "layout.pp" in facts else 1
    if stages and said and held != said.value:
        rule = f"the layout has {held} layers m for further tokens: {said.words}"
        yield Problem(given.name, text, rule, f"{said.value} letters m before L")
    elif len(places) > 1 or (places and places[0] < len(stages) - pp):
        rule = "all layers m for further tokens must be in one stage, the last one of its rank"
        yield Problem(given.name, text, rule, "m before L, in the last stage")
    elif places and places[0] != len(stages) - 1:
        rule = "Megatron computes the losses of layers m in the last stage, and the plan where the layers are"
        yield Problem(given.name, text, rule, "m before L, in the last stage", "warning")
