"""Description of a form of context parallelism, read by plans, Programs, prices and the runtime.

In a form, ranks that each hold a part of every sequence bring queries to keys. A description counts *elements* for each
token of a sequence, over all heads of the model; ``program/context_parallel/attention_collectives.py`` turns them into
bytes of collectives.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from meshwright.model.operators.operator_types import Attention


@dataclass(frozen=True, slots=True)
class Elements:
    """Elements per token: ``activations`` of 2 bytes and ``statistics`` of 4."""

    activations: int
    statistics: int = 0


@dataclass(frozen=True, slots=True)
class Exchange:
    """One exchange of ``elements`` by the ranks that hold parts of a sequence.

    A ring runs during attention: each rank passes on n − 1 times what it holds. Keys and values are gathered before
    attention, their gradients reduced and scattered after it. ``name`` tells exchanges of one kind apart.
    """

    kind: Literal["ring", "all-gather", "reduce-scatter"]
    elements: Elements
    name: str = ""


@dataclass(frozen=True, slots=True)
class FormTexts:
    """The form's row in the documentation: what it exchanges in either pass, a rank's extra memory, the source."""

    forward: str
    backward: str
    memory: str
    source: str


Exchanges = Callable[[Attention], tuple[Exchange, ...]]


@dataclass(frozen=True, kw_only=True)
class ContextFormKind:
    """A form of context parallelism.

    ``forward`` and ``backward`` list the exchanges of a pass, the latter for the input's gradient. ``buffer`` counts
    what attention's backward pass holds of other ranks' tensors: for the tokens of one rank, or of the whole sequence
    where it ``gathers``. With ``writes_scores`` softmax weights of whole rows are materialised, so that no flash kernel
    can run. With ``whole_sequences`` all ranks of cp exchange heads and attend to whole sequences of some of them.
    ``ring_multiple`` divides the number of ranks that hold parts of a sequence. ``kernel`` is the class of
    ``runtime/kernels/context_parallel`` that computes a rank's attention, as ``module:class``, imported by ranks only.
    """

    texts: FormTexts
    forward: Exchanges
    backward: Exchanges
    buffer: Callable[[Attention], Elements]
    kernel: str
    gathers: bool = False
    writes_scores: bool = False
    whole_sequences: bool = False
    ring_multiple: int = 1


def keys_and_values(op: Attention, times: int = 1) -> Elements:
    """Return the elements of keys and values, ``times`` over."""
    return Elements(times * op.kv_heads * (op.qk_dim + op.v_dim))
