"""The place of a process, from the variables of torchrun and Slurm."""

import pytest

from meshwright.errors import InputError
from meshwright.runtime.launch.launcher_environment import FIRST_PORT, PORTS, first_host, launched_place

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "16",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "node001",
    "MASTER_PORT": "29500",
}
SLURM = {
    "SLURM_PROCID": "9",
    "SLURM_NTASKS": "16",
    "SLURM_LOCALID": "1",
    "SLURM_JOB_ID": "7123456",
    "SLURM_JOB_NODELIST": "gpu[07-08]",
}


def test_without_a_launcher_there_is_no_place():
    assert launched_place({}) is None
    assert launched_place({"SLURM_NTASKS": "4", "MASTER_ADDR": "a"}) is None
    assert launched_place(SLURM | {"SLURM_NTASKS": "1", "SLURM_PROCID": "0"}) is None


def test_torchrun_gives_a_place():
    place = launched_place(TORCHRUN)
    assert (place.rank, place.ranks, place.local_rank) == (5, 16, 1)
    assert (place.launcher, place.address, place.port) == ("torchrun", "node001", 29500)


def test_slurm_gives_a_place_on_the_first_host():
    place = launched_place(SLURM)
    assert (place.rank, place.ranks, place.local_rank) == (9, 16, 1)
    assert (place.launcher, place.address) == ("slurm", "gpu07")
    assert FIRST_PORT <= place.port < FIRST_PORT + PORTS


def test_all_tasks_of_a_job_meet_at_the_same_port():
    places = [launched_place(SLURM | {"SLURM_PROCID": str(rank)}) for rank in range(16)]
    assert len({(place.address, place.port) for place in places}) == 1
    other = launched_place(SLURM | {"SLURM_JOB_ID": "7123457"})
    assert other.port != places[0].port


def test_torchrun_inside_a_slurm_job_counts_as_torchrun():
    assert launched_place(SLURM | TORCHRUN).launcher == "torchrun"


def test_a_step_counts_its_own_tasks_and_hosts_and_an_address_that_is_set_counts():
    step = SLURM | {"SLURM_STEP_NUM_TASKS": "10", "SLURM_STEP_NODELIST": "gpu08"}
    assert launched_place(step).ranks == 10
    assert launched_place(step).address == "gpu08"
    given = launched_place(step | {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "1234"})
    assert (given.address, given.port) == ("10.0.0.1", 1234)


@pytest.mark.parametrize(
    ("hosts", "first"),
    [
        ("node[007-012,20],gpu3", "node007"),
        ("node3,node[5-7]", "node3"),
        ("rack[1-2]-node[03-04].cluster", "rack1-node03.cluster"),
        ("a100-[1,3-5]", "a100-1"),
        ("single", "single"),
        ("", ""),
        ("[[[", ""),
    ],
)
def test_the_first_host_of_a_list(hosts, first):
    assert first_host(hosts) == first


@pytest.mark.parametrize("environ", [TORCHRUN, SLURM], ids=["torchrun", "slurm"])
def test_every_variable_that_is_missing_or_no_number_is_named(environ):
    with pytest.raises(InputError) as error:
        launched_place(dict.fromkeys(environ, "x"))
    fields = {problem.field for problem in error.value.problems}
    numbers = {name for name in environ if name not in ("MASTER_ADDR", "SLURM_JOB_NODELIST")}
    assert fields == {f"environment.{name}" for name in numbers}


def test_a_rank_that_is_none_is_refused():
    with pytest.raises(InputError, match="below"):
        launched_place(TORCHRUN | {"RANK": "16"})
