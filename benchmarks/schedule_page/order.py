"""Whether a prediction puts measured runs of one group into the right order."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meshwright.present.console import percent
from meshwright.validation import error_metrics


@dataclass(frozen=True)
class Order:
    """Pairs whose measured times differ by more than 5 %, those of them in order, and what the predicted best costs."""

    spearman: float | None
    right: int
    counted: int
    regret: float

    @property
    def cells(self) -> list[str]:
        """Spearman, pairs and regret for a table."""
        rank = "–" if self.spearman is None else f"{self.spearman:.2f}"
        return [rank, f"{self.right} of {self.counted}", percent(self.regret)]


CELLS = ("Spearman", "pairs", "regret")


def order_of(measured: Sequence[float], predicted: Sequence[float]) -> Order:
    """The order of one group."""
    m, p = np.array(measured), np.array(predicted)
    right, counted = error_metrics.ordered_pairs(m, p)
    by_time = m[np.argsort(p, kind="stable")]
    return Order(error_metrics.spearman(m, p), right, counted, error_metrics.regret(by_time))


def summary(orders: Sequence[Order]) -> list[str]:
    """The same cells for many groups: median Spearman, all pairs, mean regret and the largest."""
    ranks = [order.spearman for order in orders if order.spearman is not None]
    regrets = [order.regret for order in orders]
    rank = f"median {np.median(ranks):.2f}" if ranks else "–"
    pairs = f"{sum(o.right for o in orders)} of {sum(o.counted for o in orders)}"
    return [rank, pairs, f"mean {percent(float(np.mean(regrets)))}, largest {percent(max(regrets))}"]


def all_right(orders: Sequence[Order]) -> bool:
    """Whether no pair is in the wrong order."""
    return all(order.right == order.counted for order in orders)


def within(predicted: Sequence[float], measured: Sequence[float], part: float) -> str:
    """How many predictions are within a part of what was measured, with the mean error and the bias."""
    ratio = np.array(predicted) / np.array(measured)
    inside = int((np.abs(ratio - 1) <= part).sum())
    mean, bias = error_metrics.mape(ratio), error_metrics.bias(ratio)
    return f"{inside} of {len(ratio)} (MAPE {percent(mean)}, bias {bias:+.1%})"
