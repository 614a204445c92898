"""How tokens travel over ep: the forms of ``program/exchange.py``, each as what it does for a micro-batch."""

from collections.abc import Mapping

from meshwright.program.exchange import ExchangeForm
from meshwright.runtime.kernels.travel.flat import Flat
from meshwright.runtime.kernels.travel.once import hierarchical, once_per_rank
from meshwright.runtime.kernels.travel.way import Begin

FORMS: Mapping[ExchangeForm, Begin] = {
    "flat": Flat,
    "once-per-rank": once_per_rank,
    "hierarchical": hierarchical,
}
"""All of them."""
