"""Forms of context parallelism: exchanges that bring a rank's queries to the keys of the whole sequence.

==============  ===================================================================================================
form            what goes over cp
==============  ===================================================================================================
``ring``        keys and values go round; each step attends to what has come (Liu et al., arXiv 2310.01889)
``all-gather``  keys and values come together before attention, their gradients apart after it (Llama 3, arXiv
                2407.21783, section 3.3.2)
``token-ring``  queries go round, keys and values stay; what each step made goes straight back (arXiv 2412.20501)
``rsa``         keys go round for all scores, then values go round: the scores are written down (arXiv 2105.13120)
``ulysses``     all-to-all gives every rank whole sequences of some of the heads (arXiv 2309.14509)
==============  ===================================================================================================

With ``ulysses: u`` beside another form cp has two dimensions: u neighbours exchange heads, cp/u of such groups do what
the form says (arXiv 2405.07719). ``pieces``: with head and tail a rank has two pieces, one from either end, so that all
have as much to attend to under a causal mask; with contiguous pieces the last rank has most.
"""

from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Discriminator, Field, Tag

from meshwright.plans.files.strict_types import Strict, name_or_mapping

ContextForm = Literal["ring", "all-gather", "token-ring", "rsa", "ulysses"]
SequencePieces = Literal["head-tail", "contiguous"]
MAX_ULYSSES = 2**20


class Context(Strict):
    """A form with its knobs. ``ulysses`` is the degree of the inner dimension; pure Ulysses needs none."""

    form: ContextForm = "ring"
    ulysses: Annotated[int, Field(ge=1, le=MAX_ULYSSES)] = 1
    pieces: SequencePieces = "head-tail"

    def __str__(self) -> str:
        inner = [f"ulysses {self.ulysses}"] if self.ulysses > 1 else []
        pieces = [self.pieces] if self.pieces == "contiguous" else []
        return ", ".join((self.form, *inner, *pieces))

    @property
    def two_dimensional(self) -> bool:
        """Heads are exchanged inside of groups that do something else among each other."""
        return self.ulysses > 1 and self.form != "ulysses"

    @property
    def writes_scores(self) -> bool:
        """Scores of whole rows are written down: no kernel that never does so can be used."""
        return self.form == "rsa"

    @property
    def word(self) -> str:
        """The form, with the inner degree in two dimensions: ``ring+ulysses4``."""
        return f"{self.form}+ulysses{self.ulysses}" if self.two_dimensional else self.form

    def heads(self, cp: int) -> int:
        """Ranks among which heads are exchanged, of ``cp``; an array of degrees gives an array."""
        return cp if self.form == "ulysses" else self.ulysses


USUAL = Context()


def parse_context(word: str) -> Context:
    """Parse a form of context parallelism. Raise ValueError with the known forms."""
    form, plus, inner = word.partition("+ulysses")
    degree = int(inner) if plus and inner.isdecimal() else 0
    known = form in get_args(ContextForm)
    if known and not plus:
        return Context(form=form)  # type: ignore[arg-type]
    if known and form != "ulysses" and 1 < degree <= MAX_ULYSSES:
        return Context(form=form, ulysses=degree)  # type: ignore[arg-type]
    names = ", ".join(get_args(ContextForm))
    raise ValueError(f"must be one of {names}, or in two dimensions with an inner degree: ring+ulysses4")


def _name_alone(value: "ContextForm | Context") -> "ContextForm | Context":
    """Return the form's name where it has no other field."""
    if isinstance(value, Context) and value == Context(form=value.form):
        return value.form
    return value


NamedContext = Annotated[
    Annotated[ContextForm, Tag("<name>")] | Annotated[Context, Tag("<mapping>")],
    Discriminator(name_or_mapping),
    AfterValidator(_name_alone),
]
"""A name, or a mapping where more than the name is said."""


def context_in_full(said: "ContextForm | Context | None") -> Context:
    """Return the form in full; the usual one where a plan has none."""
    if said is None:
        return USUAL
    return said if isinstance(said, Context) else Context(form=said)


def shortest(said: "ContextForm | Context | None") -> "ContextForm | Context | None":
    """Return the shortest spelling; None for the usual form."""
    return None if context_in_full(said) == USUAL else _name_alone(context_in_full(said))
