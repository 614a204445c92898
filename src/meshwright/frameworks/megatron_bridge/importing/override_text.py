"""Read Megatron-Bridge overrides by dotted name, from a YAML tree or ``KEY=VALUE`` words of a script.

Three kinds of text are read. YAML in the tree of the configuration (an override file, or the ``run_config.yaml`` that
a run writes beside its checkpoints). A launch script with words as Hydra has them (``train.micro_batch_size=2``) and
the flags of Bridge's own runner (``-tp 4``). Python that assigns fields (``cfg.model.context_parallel_size = 2``).
The recipe is known by its name, wherever in the text that stands. Sources: Megatron-Bridge 0.6.2,
``training/utils/omegaconf_utils.py``; its repository at 6124fbe (branch r0.6.0), ``scripts/training/run_recipe.py``.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import Any

from meshwright.errors import InputError, Problem
from meshwright.frameworks.importing.command_line import GivenOption, given_options, last_of_each, repeated
from meshwright.frameworks.importing.shell_script import Word, read_script
from meshwright.frameworks.importing.unknown_keys import MOST
from meshwright.frameworks.megatron_bridge import options as names
from meshwright.frameworks.nested_keys import nested_keys
from meshwright.plans.files.yaml_text import read_mapping, read_value

SECTIONS = (
    *("model", "train", "ddp", "dataset", "optimizer", "dist", "mixed_precision", "comm_overlap"),
    *("checkpoint", "tokenizer", "validation", "scheduler", "logger", "rng", "profiling", "peft"),
)
PLAN_NAME = re.compile(
    "parallel|pipeline|virtual|stage|layout|recompute|batch|overlap|shard|fsdp|seq_?len|sequence|instances"
    "|layers|precision"
)
"""Names that say something of a plan: a value of theirs that can not be read is a problem, of others not."""
FLAGS: Mapping[str, str] = {
    "-tp": names.TP,
    "-pp": names.PP,
    "-cp": names.CP,
    "-vp": names.CHUNKS,
    "-ep": names.EP,
    "-etp": names.ETP,
    "-mb": names.MICRO_BATCH,
    "-gb": names.BATCH,
    "-sl": names.DATA_LENGTH,
}
"""Flags of the runner; each has a long form too, the field's name behind two hyphens."""
_NAMES = "(?:_[a-z0-9]+){0,12}"
RECIPE = re.compile(rf"\b[a-z][a-z0-9]*{_NAMES}?_(?:pretrain|sft|finetune|peft){_NAMES}_config\b")
MODES = {"pretrain": "pretrain", "sft": "sft", "lora": "peft", "dora": "peft"}
MOST_WORDS = 2**7
"""Words of the longest list that is followed."""
_NOT_FINITE = re.compile(r"(?m)^( *\w+:) [-+]?\.(?:inf|nan)$")
"""Thresholds that a saved configuration leaves open: no number of a plan."""
_PYTHON = {"None": None, "True": True, "False": False}
_ASSIGNED = re.compile(
    rf"(\+\+|\+)?(?:cfg\.|config\.)?((?:{'|'.join(SECTIONS)})(?:\.[A-Za-z_]\w*)*)(?:=(.*))?", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class BridgeOverrides:
    """Settings of a text. ``words``: as words of a command line; ``added``: keys with a leading plus sign."""

    values: Mapping[str, Any]
    recipe: str | None
    words: bool
    added: frozenset[str] = frozenset()
    options: Mapping[str, GivenOption] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


def read_overrides(text: str) -> BridgeOverrides:
    """Return the settings of ``text``. Raises InputError if it is no file for Bridge."""
    try:
        tree = read_mapping(_NOT_FINITE.sub(r"\1 null", text), "file")
    except InputError as error:
        said = _script(text)
        if not (said.values or said.recipe or said.problems):
            raise (_no_file(text) if "=" in text or not _like_a_tree(text) else error) from None
        return said
    if not tree.keys() & set(SECTIONS):
        raise _no_file(text)
    found = RECIPE.search(text)
    values = {".".join(path): value for path, value in nested_keys(tree) if not isinstance(value, Mapping)}
    return BridgeOverrides(values, found and found.group(), words=False)


def _like_a_tree(text: str) -> bool:
    return re.search(rf"(?m)^(?:{'|'.join(SECTIONS)}):", text) is not None


def _no_file(text: str) -> InputError:
    rule = "has no section, word or recipe of Megatron-Bridge"
    return InputError(Problem("file", text[:60], rule, "model: {tensor_model_parallel_size: 4}"))


def _script(text: str) -> BridgeOverrides:
    """Words of a script; one that sets a section whole looks like a variable of the shell."""
    script = read_script(text)
    options = last_of_each(given_options(script.words))
    whole = (Word(f"{name}={script.variables[name]}", 0) for name in SECTIONS if name in script.variables)
    given = list(_assignments((*script.words, *whole)))
    kept = last_of_each(given)
    problems = list(islice(repeated(given, set(filter(PLAN_NAME.search, kept))), MOST))
    values = {path: value for path, one in kept.items() for value in _read(one, problems)}
    return BridgeOverrides(
        values,
        _recipe(script.words, options),
        words=True,
        added=frozenset(re.findall(r"(?<!\S)\+{1,2}([\w.]+)=", text)),
        options=options,
        variables=script.variables,
        problems=tuple(problems),
    )


def _assignments(words: Sequence[Word]) -> Iterator[GivenOption]:
    """Every field that the words set, with its text."""
    long = {f"--{path.rpartition('.')[2]}": path for path in FLAGS.values()}
    for index, word in enumerate(words):
        following = words[index + 1 : index + MOST_WORDS]
        path = FLAGS.get(word.text) or long.get(word.text)
        match = _ASSIGNED.fullmatch(word.text)
        if path and not word.ends:
            yield _given(path, word, following[:1])
        elif match and match.group(3) is not None:
            yield _given(match.group(2), word, [replace(word, text=match.group(3)), *following])
        elif match and not word.ends and following[0].text == "=":
            yield _given(match.group(2), word, following[1:])


def _given(path: str, word: Word, values: Sequence[Word]) -> GivenOption:
    """Join the first of ``values`` with the next ones while brackets are open: a list has spaces in it."""
    taken, depth = list(values[:1]), 0
    for value, following in pairwise(values):
        depth += value.text.count("[") - value.text.count("]")
        if depth <= 0 or value.ends:
            break
        taken.append(following)
    known = bool(taken) and all(one.known for one in taken)
    return GivenOption(path, ("".join(one.text for one in taken),), word.line, known, word.conditional)


def _read(given: GivenOption, problems: list[Problem]) -> Iterator[Any]:
    """Return the value of a word, if it can be known; Hydra's values are YAML on one line."""
    (text,) = given.values
    found: tuple[Problem, ...] = ()
    if given.known:
        try:
            yield _PYTHON[text] if text in _PYTHON else read_value(text, given.name)
        except InputError as error:
            found = error.problems
    else:
        rule = "only a running shell knows this value"
        hint = f"write the value into line {given.line}, or say it with --set"
        found = (Problem(given.name, text[:80], rule, hint),)
    problems += found if PLAN_NAME.search(given.name) else ()


def _recipe(words: Sequence[Word], options: Mapping[str, GivenOption]) -> str | None:
    """Return the recipe by its full name, or by the runner's model and mode."""
    named = next((match.group() for word in words if (match := RECIPE.search(word.text))), None)
    model, mode = (options.get(name) for name in ("--model", "--mode"))
    if named or not model or not mode or not model.values or not mode.values:
        return named
    return f"{model.values[0]}_{MODES.get(mode.values[0], mode.values[0])}_config"
