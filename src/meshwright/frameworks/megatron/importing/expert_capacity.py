"""A capacity of experts as Megatron and Bridge write it: a rank's tokens; a factor below 0 is none."""

from meshwright.frameworks.importing.imported_file import Fact
from meshwright.plans.files.validation_messages import validated
from meshwright.plans.forms.short import CapacitySpec

POLICIES = ("probs", "position")


def capacity_facts(factor: str, policy: str, pad: bool, words: str) -> dict[str, Fact]:
    """Return the fact if the factor is a number and the policy is known; experts take all tokens otherwise."""
    try:
        number = float(factor)
    except ValueError:
        return {}
    if not 0 < number < float("inf") or policy not in POLICIES:
        return {}
    spec = validated(CapacitySpec, {"factor": number, "drop": policy, "pad": pad})
    return {"workload.capacity": Fact(spec.to_data(), words)}
