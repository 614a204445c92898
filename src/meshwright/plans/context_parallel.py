"""Context parallelism in a plan: a form (``plans/context_parallel_forms``) with its knobs.

With ``ring+ulysses4``, in full ``{form: ring, ulysses: 4}``, cp has two dimensions: 4 neighbours exchange heads, cp/4
of such groups run the ring among each other (arXiv 2405.07719). ``pieces``: with head and tail a rank has two pieces,
one from either end, so that all have equal work under a causal mask; with contiguous pieces the last rank has most.
"""

from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from meshwright.plans.context_parallel_forms import CONTEXT_FORMS
from meshwright.plans.context_parallel_forms.form_kind import ContextFormKind
from meshwright.plans.files.strict_types import Strict, name_or_mapping, one_of

N = TypeVar("N")
FORM_NAMES = one_of(lambda: CONTEXT_FORMS)
ContextForm = Annotated[str, FORM_NAMES]
SequencePieces = Literal["head-tail", "contiguous"]
MAX_ULYSSES = 2**20


class Context(Strict):
    """A form with its knobs. ``ulysses`` is the degree of the inner dimension; pure Ulysses needs none."""

    form: ContextForm = "ring"
    ulysses: Annotated[int, Field(ge=1, le=MAX_ULYSSES)] = 1
    pieces: SequencePieces = "head-tail"

    def __str__(self) -> str:
        return f"{self.word}, {self.pieces}" if self.pieces == "contiguous" else self.word

    @property
    def kind(self) -> ContextFormKind:
        """The description of the form."""
        return CONTEXT_FORMS[self.form]

    @property
    def two_dimensional(self) -> bool:
        """Heads are exchanged inside of groups that do something else among each other."""
        return self.ulysses > 1 and not self.kind.whole_sequences

    @property
    def word(self) -> str:
        """The form, with the inner degree in two dimensions: ``ring+ulysses4``."""
        return f"{self.form}+ulysses{self.ulysses}" if self.two_dimensional else self.form

    def heads(self, cp: N) -> N | int:
        """Ranks among which heads are exchanged, of ``cp``; an array of degrees may give an array."""
        return cp if self.kind.whole_sequences else self.ulysses


USUAL = Context()
HEADS_ALONE = Context(form=next(name for name, kind in CONTEXT_FORMS.items() if kind.whole_sequences))
"""The form that exchanges heads and nothing else."""


def parse_context(word: str) -> Context:
    """Parse a form of context parallelism. Raise ValueError with the known forms."""
    form, plus, inner = word.partition("+ulysses")
    degree = int(inner) if plus and inner.isdecimal() else 0
    if form in CONTEXT_FORMS and not plus:
        return Context(form=form)
    if form in CONTEXT_FORMS and not CONTEXT_FORMS[form].whole_sequences and 1 < degree <= MAX_ULYSSES:
        return Context(form=form, ulysses=degree)
    names = ", ".join(CONTEXT_FORMS)
    raise ValueError(f"must be one of {names}, or in two dimensions with an inner degree: ring+ulysses4")


def _checked_word(value: object) -> object:
    """Return the word of a form, in one dimension or two."""
    if isinstance(value, str) and "+" in value:
        try:
            return parse_context(value).word
        except ValueError as error:
            raise PydanticCustomError("context_form", "{rule}", {"rule": str(error)}) from None
    return FORM_NAMES.func(value)  # type: ignore[call-arg]


def _word_alone(value: str | Context) -> str | Context:
    """Return the form's word where that says everything."""
    if isinstance(value, Context) and value == parse_context(value.word):
        return value.word
    return value


NamedContext = Annotated[
    Annotated[str, BeforeValidator(_checked_word), Tag("<name>")] | Annotated[Context, Tag("<mapping>")],
    Discriminator(name_or_mapping),
    AfterValidator(_word_alone),
]
"""A word, or a mapping where a form has other pieces than the usual ones."""


def context_in_full(given: str | Context | None) -> Context:
    """Return the form in full; the usual one where a plan has none."""
    if given is None:
        return USUAL
    return given if isinstance(given, Context) else parse_context(given)


def shortest(given: str | Context | None) -> str | Context | None:
    """Return the shortest spelling; None for the usual form."""
    return None if context_in_full(given) == USUAL else _word_alone(context_in_full(given))
