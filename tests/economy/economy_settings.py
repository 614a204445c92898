"""Settings whose training is weighed."""

from meshwright.cluster.load import load_cluster
from meshwright.economy.assumptions import Assumptions
from meshwright.model.load import load_model
from meshwright.plans.setting import Setting
from meshwright.stack.load import load_stack
from meshwright.workload.workload import Workload

ASSUMED = Assumptions(storage_gbyte_per_s_per_node=2.0, restart_s=300.0)


def setting(on, assumed=ASSUMED, task="pretrain"):
    """Llama-3.1-8B on a cluster with what is assumed of it."""
    workload = Workload(task=task, seq_len=4096, global_batch=64)
    cluster = assumed.on(load_cluster(on))
    return Setting.of(load_model("llama-3.1-8b"), cluster, workload, load_stack("megatron-core"))
