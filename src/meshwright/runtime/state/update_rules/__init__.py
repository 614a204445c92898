"""Update rules of the optimizers: element by element; Muon's for matrices is in ``orthogonalisation.py``."""

from collections.abc import Mapping

from meshwright.runtime.state.update_rules.adamw_rule import adamw
from meshwright.runtime.state.update_rules.lion_rule import lion
from meshwright.runtime.state.update_rules.qh_adamw_rule import qh_adamw
from meshwright.runtime.state.update_rules.sgd_rule import sgd
from meshwright.runtime.state.update_rules.update_rule import UpdateRule

UPDATE_RULES: Mapping[str, UpdateRule] = {"adamw": adamw, "sgd": sgd, "lion": lion, "qh-adamw": qh_adamw}
"""The rules by the names of ``workload/optimizers``."""
