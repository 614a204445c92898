"""An entry of the plan key ``synchronise``.

An axis without an entry is exact in every step. An entry says, for one kind of state and one axis, which ``fragments``
are exchanged every how many steps, how long an exchange may take (``delay``), in which encoding (``compress``), and
what becomes of its result: an ``outer`` optimizer moves the anchor, and ``merge`` weighs it against local values.

An axis is *loose* where an entry averages parameters over it and none exchanges gradients. Ranks that the other axes
join are an *island*.
"""

from collections.abc import Collection, Iterable
from typing import Annotated

from pydantic import Discriminator, Field, Tag

from meshwright.plans.files.strict_types import Number, Strict, name_or_list, name_or_mapping
from meshwright.plans.synchronisation.combination import MEAN, ROW_RULES, Coded, Combination, Partners
from meshwright.plans.synchronisation.compression import Compression
from meshwright.plans.synchronisation.outer_optimizer import Outer

STATES = ("gradient", "parameter", "first_moment", "second_moment", "optimizer", "expert_token")
AXES = ("dp_shard", "dp_replicate", "ep")
FRAGMENT_PATTERNS = ("strided", "sequential")
OWNS = ("stale", "fresh")
WEIGHTS = ("tokens", "equal")
HOMES = ("device", "host")
NEVER = "never"
"""A period that is parsed and not supported yet."""
NO_OUTER = "none"


def every_kind(value: object) -> str:
    """Return the branch of ``every`` for a value: a number, a rule, or a name."""
    kind = name_or_mapping(value)
    return kind if kind == "<mapping>" or isinstance(value, str) else "<number>"


def number_name_or_mapping(value: object) -> str:
    """Return the branch of ``fragments`` for a value."""
    return "<mapping>" if name_or_mapping(value) == "<mapping>" else "<number>"


class Quadratic(Strict):
    """The quadratic synchronisation rule: max(base, ⌊(alpha/learning rate)²⌋) steps (arXiv 2310.14423, eq. 2)."""

    base: Number
    alpha: Number


class PeriodRule(Strict):
    """A rule of the number of steps between exchanges; ``probability`` is not supported yet."""

    qsr: Quadratic | None = None
    probability: Number | None = None


class Fragments(Strict):
    """Layer l is in fragment l mod count (strided), or fragments are runs of layers (sequential)."""

    count: Number
    pattern: str = "strided"


class Synchronisation(Strict):
    """A periodic exchange of one kind of model state over an axis. See the module's text.

    ``partners`` is the key ``with``, a Python keyword. A list in ``over`` is parsed and not supported yet.
    """

    state: str
    over: Annotated[
        Annotated[str, Tag("<name>")] | Annotated[tuple[str, ...], Tag("<list>")], Discriminator(name_or_list)
    ]
    every: Annotated[
        Annotated[Number, Tag("<number>")]
        | Annotated[str, Tag("<name>")]
        | Annotated[PeriodRule, Tag("<mapping>")],
        Discriminator(every_kind),
    ] = 1
    fragments: Annotated[
        Annotated[Number, Tag("<number>")] | Annotated[Fragments, Tag("<mapping>")],
        Discriminator(number_name_or_mapping),
    ] = 1
    delay: Number = 0
    own: str = "stale"
    merge: Number = 1.0
    weigh: str = "tokens"
    compress: Compression | None = None
    outer: (
        Annotated[
            Annotated[str, Tag("<name>")] | Annotated[Outer, Tag("<mapping>")], Discriminator(name_or_mapping)
        ]
        | None
    ) = None
    keep: str = "device"
    combine: (
        Annotated[
            Annotated[str, Tag("<name>")] | Annotated[Combination, Tag("<mapping>")],
            Discriminator(name_or_mapping),
        ]
        | None
    ) = None
    partners: Annotated[
        Annotated[
            Annotated[str, Tag("<name>")] | Annotated[Partners, Tag("<mapping>")],
            Discriminator(name_or_mapping),
        ]
        | None,
        Field(alias="with"),
    ] = None

    @property
    def period(self) -> int:
        """Steps between exchanges of a legal entry; with a rule its base, the fewest."""
        return int(self.every) if isinstance(self.every, int | float) else int(self.rule.base)

    @property
    def rule(self) -> Quadratic:
        """The rule of the steps between exchanges, of an entry that has one."""
        assert isinstance(self.every, PeriodRule)
        assert self.every.qsr is not None
        return self.every.qsr

    @property
    def has_rule(self) -> bool:
        """Return true if a rule says the steps between exchanges."""
        return isinstance(self.every, PeriodRule)

    @property
    def fragment_rule(self) -> Fragments:
        """The fragments in full."""
        return self.fragments if isinstance(self.fragments, Fragments) else Fragments(count=self.fragments)

    @property
    def axis(self) -> str:
        """The axis of a legal entry."""
        assert isinstance(self.over, str)
        return self.over

    @property
    def outer_in_full(self) -> Outer | None:
        """The outer optimizer; None: the mean itself."""
        return self.outer if isinstance(self.outer, Outer) else None

    @property
    def combination(self) -> str:
        """The rule by which a legal entry combines gradients."""
        return self.combine.name if isinstance(self.combine, Combination) else self.combine or MEAN

    @property
    def combination_options(self) -> object:
        """The options of that rule; None if it has none."""
        return getattr(self.combine, self.combination) if isinstance(self.combine, Combination) else None

    @property
    def takes_rows(self) -> bool:
        """Return true if the rule needs each replica's decoded gradient."""
        return self.combination in ROW_RULES

    @property
    def coded(self) -> Coded | None:
        """The code of an entry whose replicas compute several shares."""
        return self.combine.coded if isinstance(self.combine, Combination) else None

    @property
    def quorum(self) -> int | float | str | None:
        """The replicas that a step waits for; None: all."""
        return self.partners.quorum if isinstance(self.partners, Partners) else None

    @property
    def combines(self) -> bool:
        """Return true if gradients are combined in another way than by the mean of all replicas."""
        return self.combination != MEAN or self.quorum is not None

    @property
    def lacks_late_replicas(self) -> bool:
        """Return true if a step need not wait for all replicas."""
        return self.quorum is not None or self.coded is not None

    @property
    def states(self) -> tuple[str, ...]:
        """The states that are exchanged: ``optimizer`` stands for both moments."""
        return ("first_moment", "second_moment") if self.state == "optimizer" else (self.state,)


def combined_entry(entries: Iterable[Synchronisation]) -> int | None:
    """Return the number of the entry of gradients with a rule or a quorum; a legal plan has one at most."""
    return next((n for n, said in enumerate(entries) if said.state == "gradient" and said.combines), None)


def shares_per_replica(entries: Iterable[Synchronisation]) -> int:
    """Return the shares of a batch that each replica computes: several where gradients are coded."""
    codes = (entry.coded for entry in entries if entry.state == "gradient" and entry.coded is not None)
    tolerated = next((code.tolerate for code in codes), None)
    return 1 + int(tolerated or 0)


def exchanged_between_steps(entries: Iterable[Synchronisation], loose: Collection[str]) -> tuple[int, ...]:
    """Return the numbers of entries whose exchanges stand behind the optimizer's step, in the order in which they act.

    Shorter periods come first, equal ones as they are written. All others are
    exchanged in every step, inside of it.
    """
    numbered = [
        (entry.period, number)
        for number, entry in enumerate(entries)
        if entry.axis in loose and entry.state not in ("gradient", "expert_token")
    ]
    return tuple(number for _, number in sorted(numbered))


def loose_axes(entries: Iterable[Synchronisation], sharded: Collection[str]) -> tuple[str, ...]:
    """Return the axes over which parameters differ between exchanges, in the order of their entries.

    Over axes that some state is ``sharded`` by they never do.
    """
    entries = tuple(entries)
    exact = {*sharded, *(entry.axis for entry in entries if entry.state == "gradient")}
    loose = (
        entry.axis for entry in entries if entry.state == "parameter" and entry.axis not in {*exact, "ep"}
    )
    return tuple(dict.fromkeys(loose))
