"""The number of tokens of a whole training, if given, and the assumptions on prices and failures."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from meshwright.cluster.catalog_prices import ON_DEMAND, SPOT, check_price_term, usual_price
from meshwright.cluster.cluster import Cluster, Pool
from meshwright.economy.assumptions import OF_DEVICES, Assumptions, parse_assumptions
from meshwright.errors import InputError, Problem, attempted, nearest
from meshwright.units import GIGA, MEGA, TERA

SIZES = {"": 1.0, "K": 1e3, "M": MEGA, "B": GIGA, "T": TERA}
MOST, MAX = 1e18, "max"
_FORM = re.compile(r"(?P<number>\d[\d_,]*(?:\.\d+)?(?:e\+?\d{1,2})?)\s*(?P<size>[KMBT]?)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TrainingTerms:
    """``tokens`` of the whole training, None where nobody asks; ``price`` is the term of prices.

    ``most``: as many tokens as keep the limits.
    """

    tokens: int | None = None
    assumed: Assumptions = field(default_factory=Assumptions)
    price: str = ON_DEMAND
    most: bool = False

    def on(self, cluster: Cluster) -> Cluster:
        """Return the cluster with prices of the term, where they are the catalogue's, and with what is assumed."""
        if self.price != ON_DEMAND:
            cluster = replace(cluster, pools=tuple(map(self._priced, cluster.pools)))
        return self.assumed.on(cluster)

    def _priced(self, pool: Pool) -> Pool:
        price = pool.usd_per_device_hour
        of_catalogue = price is None or price.term
        return (
            replace(pool, usd_per_device_hour=usual_price(pool.device.id, self.price))
            if of_catalogue
            else pool
        )

    def remarks(self, clusters: Sequence[Cluster]) -> Iterator[str]:
        """Yield doubts about the terms: what is assumed of all device families alike, and prices of spot offers."""
        pools = [pool for one in clusters for pool in one.pools]
        families = list(dict.fromkeys(pool.device.id for pool in pools))
        for name in OF_DEVICES if len(families) > 1 else ():
            value = getattr(self.assumed, name)
            if value is not None:
                for_one = f"for one of them: --assume {families[0]}:{name}={value:g}"
                yield f"{name} = {value:g} is assumed for all of {', '.join(families)}; {for_one}"
        if any(pool.usd_per_device_hour and pool.usd_per_device_hour.term == SPOT for pool in pools):
            yield "prices are those of spot offers: interruptions are not in the failure rate"

    def unknown_families(self, clusters: Sequence[Cluster]) -> Iterator[Problem]:
        """Yield a problem for each family that is assumed something of and that no cluster has."""
        known = list(dict.fromkeys(pool.device.id for one in clusters for pool in one.pools))
        for family in self.assumed.families:
            if family not in known:
                rule = f"is a device that no cluster has; they have {', '.join(known)}"
                yield Problem("assume", family, rule, nearest(family, known))

    def churn_problems(self) -> Iterator[Problem]:
        """Yield a problem where churn is assumed, for questions that predict no step of one plan that trains."""
        if self.assumed.churn_per_hour is not None:
            rule = "is for predict with a plan that trains"
            yield Problem("assume.churn_per_hour", self.assumed.churn_per_hour, rule, "leave it out")

    def of_device(self, device: str) -> "TrainingTerms":
        """Return the terms that hold for one device id."""
        return replace(self, assumed=self.assumed.of_device(device))


def parse_terms(
    tokens: str | int | None = None, assume: Iterable[str] = (), price: str = ON_DEMAND
) -> TrainingTerms:
    """``15T`` and ``restart_s=300`` as terms. Raises InputError with all problems."""
    problems: list[Problem] = []
    attempted(lambda: check_price_term(price), problems)
    most = str(tokens).strip() == MAX
    count = None if tokens is None or most else attempted(lambda: parse_tokens(str(tokens)), problems)
    assumed = attempted(lambda: parse_assumptions(assume), problems)
    if problems or assumed is None:
        raise InputError(problems)
    return TrainingTerms(count, assumed, price, most)


def parse_tokens(text: str) -> int:
    """Parse a number of tokens. Raise InputError."""
    match = _FORM.fullmatch(text.strip())
    count = 0.0
    if match is not None:
        count = float(re.sub("[_,]", "", match["number"])) * SIZES[match["size"].upper()]
    if not 1 <= count <= MOST:
        rule = "must be a number of tokens from 1 to 10^18, with K, M, B or T for thousands to trillions"
        raise InputError(Problem("tokens", text, rule, "--tokens 15T"))
    return round(count)
