"""The setting of a planning question: model, cluster, workload and stack."""

from dataclasses import dataclass

from meshwright.cluster.cluster import Cluster
from meshwright.model.graph import ModelGraph
from meshwright.model.transforms.lora_adapters import with_adapters
from meshwright.plans.forms.dtypes import Dtypes
from meshwright.plans.synchronisation.periods import LearningRates
from meshwright.stack.stack import LayerChoice, Stack
from meshwright.stack.state_types import master_is_parameter, with_types
from meshwright.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class GivenConstants:
    """Constants of the cost model that the user gave, with their values: these have no spread.

    ``source``: the file that they were given in. ``unused``: those of other devices, stacks and tiers.
    """

    source: str
    values: tuple[tuple[str, float], ...] = ()
    unused: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return the constants with their origin in words."""
        given = ", ".join(f"{name} = {value:g}" for name, value in self.values)
        parts = [f"given in {self.source}, without spread: {given or 'none'}"]
        if self.unused:
            parts.append(f"of others there, this question depends on none: {', '.join(self.unused)}")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class Setting:
    """Model, cluster, workload and stack of a planning question; ``given`` are constants that the user gave.

    ``rates`` are the learning rates of a run, by which rules of ``synchronise`` set their periods.
    """

    model: ModelGraph
    cluster: Cluster
    workload: Workload
    stack: Stack
    given: GivenConstants | None = None
    rates: LearningRates | None = None

    @property
    def free_by_layer(self) -> tuple[LayerChoice, ...]:
        """Choices that a search makes for each layer; none for a model with an encoder."""
        return self.stack.free_by_layer if self.model.architecture.encoder is None else ()

    @property
    def same_by_layer(self) -> str:
        """Return why a search has the same for all layers, where it has."""
        plans = self.stack.id if self.model.architecture.encoder is None else "a model with an encoder"
        return f"plans of {plans} are searched with one layout and one recomputation for all layers"

    @classmethod
    def of(
        cls,
        model: ModelGraph,
        cluster: Cluster,
        workload: Workload,
        stack: Stack,
        dtypes: Dtypes | None = None,
    ) -> "Setting":
        """Make a setting of a loaded model; a LoRA workload adds adapters, ``dtypes`` and the optimizer change
        the stack's states.
        """
        if workload.task == "lora":
            halves = stack.frozen_apart or master_is_parameter(stack.base or stack)
            model = with_adapters(model, workload.adapter, halves=halves)
        own = with_types(stack, workload.precision, dtypes.written if dtypes else {}, workload.optimizer)
        return cls(model, cluster, workload, own)
