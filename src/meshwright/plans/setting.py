"""The setting of a planning question: model, cluster, workload and stack."""

from dataclasses import dataclass

from meshwright.cluster.cluster import Cluster
from meshwright.model.graph import ModelGraph
from meshwright.model.transforms.lora_adapters import with_adapters
from meshwright.plans.forms.dtypes import Dtypes
from meshwright.stack.stack import Stack
from meshwright.stack.state_types import master_is_parameter, with_types
from meshwright.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Setting:
    """Model, cluster, workload and stack of a planning question."""

    model: ModelGraph
    cluster: Cluster
    workload: Workload
    stack: Stack

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
