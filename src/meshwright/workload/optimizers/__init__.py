"""The optimizers that a workload may name; ``workload/optimizer_choice.py`` is one of them with its options."""

from collections.abc import Mapping

from meshwright.workload.optimizers.adamw import ADAMW
from meshwright.workload.optimizers.lion import LION
from meshwright.workload.optimizers.muon import MUON
from meshwright.workload.optimizers.optimizer_kind import OptimizerKind
from meshwright.workload.optimizers.qh_adamw import QH_ADAMW
from meshwright.workload.optimizers.sgd import SGD
from meshwright.workload.optimizers.zo_sgd import ZO_SGD

OPTIMIZERS: Mapping[str, OptimizerKind] = {
    "adamw": ADAMW,
    "sgd": SGD,
    "lion": LION,
    "muon": MUON,
    "qh-adamw": QH_ADAMW,
    "zo-sgd": ZO_SGD,
}
