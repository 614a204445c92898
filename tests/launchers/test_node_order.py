"""A plan's order of nodes in launch scripts: every host gets its place, the first ranks' host is where they meet."""

from dataclasses import replace

import pytest
from export_cases import Case, case
from script_runs import run

from meshwright.cluster.load import load_cluster
from meshwright.errors import UnsupportedError
from meshwright.frameworks.exporting.launcher_files import launch_files
from meshwright.launchers import LAUNCHERS, ORDERING
from meshwright.launchers.job_nodes import host_order, job_for

LAYOUT = {"dp_shard": 8, "tp": 2}


def ordered(order=(1, 0)) -> Case:
    this = case(layout=LAYOUT)
    layouts = {name: one.model_copy(update={"node_order": order}) for name, one in this.plan.layouts.items()}
    return replace(this, plan=this.plan.model_copy(update={"layouts": layouts}))


def value(words, option):
    return words[words.index(option) + 1]


def test_each_host_is_started_at_its_place(tmp_path):
    for node, place in ((0, "1"), (1, "0")):
        words = run(ordered(), "megatron", tmp_path, "launch.sh", SLURM_NODEID=str(node), MASTER_ADDR="host1")
        assert value(words, "--node-rank") == place
        assert value(words, "--master-addr") == "host1"
        assert "--rdzv-backend" not in words


def test_a_host_that_does_not_know_its_number_is_not_started(tmp_path):
    with pytest.raises(Exception, match="exit status 1"):
        run(ordered(), "megatron", tmp_path, "launch.sh")


def test_slurm_has_them_meet_at_the_host_of_the_first_ranks(tmp_path):
    slurm = {"SLURM_JOB_NODELIST": "node[0-1]", "SLURM_JOB_ID": "3", "SLURM_JOB_NUM_NODES": "2"}
    slurm |= {"SLURM_NODEID": "0", "EXPORT_DIR": str(tmp_path / "torchtitan")}
    for order, host in (((1, 0), "node1"), ((0, 1), "node0")):
        words = run(ordered(order), "torchtitan", tmp_path, "job.sbatch", **slurm)
        assert value(words, "--master-addr") == host
        assert value(words, "--node-rank") == str(order.index(0))


def test_without_an_order_scripts_are_as_they_were():
    plain = case(layout=LAYOUT)
    assert plain.to("megatron") != ordered().to("megatron")
    assert ordered(None).to("megatron") == plain.to("megatron")


def test_nodes_of_several_hosts_change_places_with_all_of_them():
    cluster = load_cluster("gb200 x 144")
    assert host_order(ordered((1, 0)).plan, cluster) == (*range(18, 36), *range(18))


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_launchers_that_order_nothing_refuse_by_name(launcher):
    this = ordered()
    export, job = this.to("megatron"), job_for(this.cluster, this.model.name, this.plan)
    if launcher in ORDERING:
        assert "megatron/job.sbatch" in launch_files(export, job, launcher).files
        return
    with pytest.raises(UnsupportedError) as caught:
        launch_files(export, job, launcher)
    (problem,) = caught.value.problems
    assert problem.field == "layout.node_order"
    assert launcher in problem.rule
