"""The four given nouns together: what a plan is chosen for."""

from dataclasses import dataclass

from meshwright.cluster.graph import Cluster
from meshwright.model.graph import ModelGraph
from meshwright.stack.stack import Stack
from meshwright.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Setting:
    """Model, cluster, workload and stack of a planning question."""

    model: ModelGraph
    cluster: Cluster
    workload: Workload
    stack: Stack
