"""What each optimizer does with parameters and gradients: by element here, by whole matrix in ``muon.py``."""

from collections.abc import Mapping

from meshwright.runtime.state.update_rules.adamw import adamw
from meshwright.runtime.state.update_rules.lion import lion
from meshwright.runtime.state.update_rules.sgd import sgd
from meshwright.runtime.state.update_rules.update_rule import UpdateRule

UPDATE_RULES: Mapping[str, UpdateRule] = {"adamw": adamw, "sgd": sgd, "lion": lion}
"""The rules by the names of ``workload/optimizers``."""
