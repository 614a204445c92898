"""The error that ends a run because of faults, with the faults in JSON."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from meshwright.errors import RunError
from meshwright.runtime.faults.fault import Fault
from meshwright.runtime.training.job_and_outcome import Members


class FaultStopError(RunError):
    """Faults have ended a run; ``details`` has them in JSON."""

    def __init__(self, text: str, faults: Sequence[Fault], members: Sequence[Members] = ()) -> None:
        super().__init__(text)
        self.details: Mapping[str, Any] = MappingProxyType(
            {
                "faults": [fault.to_json() for fault in faults],
                "members": [change.to_json() for change in members],
            }
        )
