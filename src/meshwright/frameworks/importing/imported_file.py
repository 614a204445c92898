"""Facts of a plan read from another framework's file, each with the file's own words.

An importer reads text and nothing else: it opens no other file, runs nothing, and knows neither the model nor the
cluster. What it finds are *facts* by the path of the short plan that they set (``layout.tp``), or by one of the names
below that no short plan has and that ``assemble`` turns into layout and workload once the cluster is known:

``devices``               processes that the file starts (nodes × processes per node)
``dp``                    ranks that see different sequences, where the file does not say how they shard
``shard_group``           ranks that share one copy of the sharded states, where the file says so
``accumulation``          micro-batches of one rank in one step, where the file says it beside the micro-batch
``batch_ranks``           ranks of one replica, where the file's batch counts every one of them
``flush``                 micro-batches after which the pipeline is flushed, where that is not once per step
``stages``                ``Stage`` by stage, where the file writes the stages out
``layers_per_stage``      layers of one virtual stage, where the file says that in place of their number
``recomputed_first``      the first layers of each stage, where ``recompute`` is theirs alone
``dtypes.gradient`` …     an element type of states; ``16-bit`` is that of the precision
``offload.optimizer`` …   a share of states whose home is the host, and of ``parameters``
``stack``                 the stack that the file is for, by our name
``model``                 the model by our name
``model.layers`` …        a field of ``Architecture`` that the file sets by itself
``shape.gated`` …         what else it says of the model: gated, rmsnorm, tied, positions
``next_tokens.layers`` …  layers behind ``model.layers`` that predict further tokens, and their weight in the loss

A fact that is not there was not said: defaults are the framework's own, so an importer states those of them that
differ from the short plan's. Nothing is dropped: an option that changes nothing of a plan is not mentioned, one that
would and has no counterpart is ``unread``, one that the framework would refuse or ignore is a ``Problem``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from meshwright.errors import Problem

NEXT_LAYERS, NEXT_WEIGHT = "next_tokens.layers", "next_tokens.weight"
RECOMPUTED_FIRST = "recomputed_first"


class Fact(NamedTuple):
    """A value in our words, and what in the file says so: ``--tensor-model-parallel-size 8``."""

    value: Any
    words: str


def number_in(facts: Mapping[str, Fact], path: str, default: int = 1) -> int:
    """Return the whole number that a file states, or ``default``."""
    return int(facts[path].value) if path in facts else default


class Stage(NamedTuple):
    """Contents of a pipeline stage that a file writes out; ``further`` layers predict further tokens."""

    embed: bool
    layers: int
    head: bool
    further: int = 0


@dataclass(frozen=True, slots=True)
class UnmappedOption:
    """A key of the file without a counterpart in a plan, and what is lost with it."""

    key: str
    value: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFile:
    """A file as an importer understood it. ``source`` names the importer, ``release`` the option list it knows."""

    source: str
    release: str
    facts: Mapping[str, Fact]
    unread: tuple[UnmappedOption, ...] = ()
    problems: tuple[Problem, ...] = field(default=())

    def value(self, path: str, default: Any = None) -> Any:
        """Return the value of a fact, or ``default`` where the file leaves it open."""
        fact = self.facts.get(path)
        return default if fact is None else fact.value

    def words(self, path: str) -> str:
        """Return the file's words for ``path``, or the path itself."""
        fact = self.facts.get(path)
        return fact.words if fact else path


@dataclass(frozen=True, slots=True)
class OutsideFacts:
    """Facts that are not the text's: ``sizes`` of the model, and ``changes`` that stand above what the text says."""

    sizes: Mapping[str, Fact] = field(default_factory=dict)
    changes: Mapping[str, Fact] = field(default_factory=dict)


ALONE = OutsideFacts()
"""Nothing besides the text."""
DESCRIBED = ("model.hidden", "model.heads")
"""Sizes that a file states only if it describes its model."""


def completed(facts: Mapping[str, Fact], outside: OutsideFacts) -> dict[str, Fact]:
    """Return the facts of a file with the model's sizes that it leaves out, and with changes.

    A file that describes its model without experts has none.
    """
    described = all(path in facts for path in DESCRIBED)
    sizes = {p: f for p, f in outside.sizes.items() if not (described and "expert" in p)}
    return sizes | dict(facts) | dict(outside.changes)


class Importer(Protocol):
    """Reads one format."""

    def __call__(self, text: str, outside: OutsideFacts = ALONE) -> ImportedFile:
        """Read ``text``. Raises InputError if it cannot be parsed.

        The framework's rules are asked of what the text says with the facts from ``outside``.
        """
        ...
