"""Megatron's text for stages, ``Ettt|(tttt|)*6tttL``: E embedding, t a layer, m a layer for further tokens, L the loss.

A stage ends at ``|``; ``x*n`` repeats a letter or a group in parentheses. Source: megatron-core 0.19.2,
``core/transformer/pipeline_parallel_layer_layout.py``.
"""

import re

from meshwright.errors import Problem
from meshwright.frameworks.importing.command_line import GivenOption
from meshwright.frameworks.importing.imported_file import Stage
from meshwright.plans.layers.layer_assignment import balanced_counts

MAX_LETTERS = 2**14
_REPEATED = re.compile(r"(?:\(([EtmL|]*)\)|([EtmL|]))\*([0-9]{1,5})")


def read_layout(given: GivenOption, problems: list[Problem]) -> tuple[Stage, ...]:
    """Return the stages of the option's text; none, and a problem, if it cannot be parsed."""
    text = "".join(given.values[:1]).replace(" ", "").replace(",", "")
    letters = _unfolded(text)
    if letters is None or not letters:
        rule = "must be letters E t m L, stages between |, groups as (tt|)*6"
        problems.append(Problem(given.name, text, rule, "Ettt|tttt|tttL"))
        return ()
    if (
        not letters.startswith("E")
        or not letters.endswith("L")
        or letters.count("E") != 1
        or letters.count("L") != 1
    ):
        rule = "must begin with the one embedding E and end with the one loss L"
        problems.append(Problem(given.name, text, rule, "Ettt|tttt|tttL"))
        return ()
    if "m" in letters and "t" in letters[letters.index("m") :]:
        rule = "layers m, which predict further tokens, stand behind all layers t"
        problems.append(Problem(given.name, text, rule, "Ettt|tttt|tttmL"))
        return ()
    return tuple(
        Stage("E" in stage, stage.count("t"), "L" in stage, stage.count("m")) for stage in letters.split("|")
    )


def layout_of(layers: int, stages: int, further: int = 0) -> str:
    """Return the text for balanced stages, followed by ``further`` multi-token prediction layers."""
    ending = "m" * further + "L"
    return "|".join(
        [
            "E" * (stage == 0) + f"t*{count}" + ending * (stage == stages - 1)
            for stage, count in enumerate(balanced_counts(layers, stages))
        ]
    )


def _unfolded(text: str) -> str | None:
    """Expand the repeated letters; None for other characters, or too many."""
    while "*" in text or "(" in text:
        unfolded = _REPEATED.sub(_repeat, text)
        unfolded = re.sub(r"\(([EtmL|]*)\)(?!\*)", r"\1", unfolded)
        if unfolded == text or len(unfolded) > MAX_LETTERS:
            return None
        text = unfolded
    return text if re.fullmatch(r"[EtmL|]+", text) else None


def _repeat(match: re.Match[str]) -> str:
    group, letter, count = match.groups()
    repeated = letter if group is None else group
    return repeated * min(int(count), MAX_LETTERS // max(1, len(repeated)) + 1)
