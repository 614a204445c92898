"""The end of a run because of faults."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from meshwright.errors import RunError
from meshwright.runtime.faults.fault import Fault
from meshwright.runtime.training.job_and_outcome import Members


class FaultStopError(RunError):
    """A run that has ended because of faults; ``details`` has them in JSON."""

    def __init__(self, text: str, faults: Sequence[Fault], members: Sequence[Members] = ()) -> None:
        super().__init__(text)
        self.details: Mapping[str, Any] = MappingProxyType(
            {
                "faults": [fault.to_json() for fault in faults],
                "members": [change.to_json() for change in members],
            }
        )
