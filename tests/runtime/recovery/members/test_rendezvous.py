"""The store that members meet in: its values, who may use it, and where it listens."""

import json
import os
from datetime import timedelta
from multiprocessing.connection import Client
from pathlib import Path
from threading import Thread

import pytest

pytest.importorskip("torch")

import torch.distributed as dist

from meshwright.errors import InputError, RunError
from meshwright.runtime.launch.network_address import LOOPBACK, Address
from meshwright.runtime.recovery.members.rendezvous_server import RendezvousServer
from meshwright.runtime.recovery.members.rendezvous_store import RendezvousStore, ServerClient

TOKEN = b"a token of the tests"
SOON, LATE = timedelta(seconds=0.05), timedelta(seconds=30)


class Echo:
    """A service that returns what it is asked, and keeps the numbers of closed connections."""

    def __init__(self):
        self.gone = []

    def answer(self, request, connection):
        return request

    def closed(self, connection):
        self.gone.append(connection)


@pytest.fixture
def server():
    made = RendezvousServer(Address(LOOPBACK, 0), TOKEN)
    made.serve(Echo())
    yield made
    made.close()


@pytest.fixture
def store(server):
    return RendezvousStore(ServerClient(server.address, TOKEN, "the test"))


@pytest.mark.parametrize("prefix", [None, "epoch-2"])
def test_the_store_keeps_torchs_contract(store, prefix):
    used = store if prefix is None else dist.PrefixStore(prefix, store)
    used.set("name", b"\x00\xff value")
    assert used.get("name") == b"\x00\xff value"
    assert used.add("count", 2) == 2
    assert used.add("count", 3) == 5
    assert used.check(["name", "count"])
    assert not used.check(["name", "other"])
    assert used.compare_set("fresh", "", "first") == b"first"
    assert used.compare_set("fresh", "other", "second") == b"first"
    assert used.compare_set("fresh", "first", "second") == b"second"
    assert used.compare_set("missing", "expected", "value") == b"expected"
    assert store.num_keys() == 3
    assert used.delete_key("name")
    assert not used.delete_key("name")


def test_a_wait_ends_when_the_key_is_set(store):
    setter = Thread(target=lambda: store.set("late", "value"))
    setter.start()
    store.wait(["late"], LATE)
    setter.join()
    assert store.get("late") == b"value"


def test_a_wait_in_vain_raises(store, server):
    with pytest.raises(dist.DistStoreError, match="not set in time"):
        store.wait(["never"], SOON)
    waiting = []

    def wait():
        with pytest.raises(dist.DistStoreError, match="has ended"):
            store.wait(["epoch-1/key"], LATE)
        waiting.append("ended")

    waiter = Thread(target=wait)
    waiter.start()
    server.values.end("epoch-1/")
    waiter.join()
    assert waiting == ["ended"]


def test_another_token_is_refused_by_name(server):
    client = ServerClient(server.address, b"not the token of the run", "run/token")
    with pytest.raises(InputError, match=r"MESHWRIGHT_TOKEN .*another token than that of run/token") as error:
        client.request("count")
    assert "not the token" not in str(error.value)
    assert ServerClient(server.address, TOKEN, "").request("count") == 0


def test_an_address_without_a_run_is_refused_by_name(server):
    server.close()
    with pytest.raises(InputError, match=r"join .*no run answers there"):
        ServerClient(server.address, TOKEN, "").request("count")


def test_a_server_that_has_ended_is_named(server):
    client = ServerClient(server.address, TOKEN, "")
    client.request("count")
    server.close()
    with pytest.raises(RunError, match=r"first command .* has ended"):
        client.request("count")


def test_an_address_in_use_is_refused(server):
    with pytest.raises(InputError, match=r"listen .*cannot listen there"):
        RendezvousServer(server.address, TOKEN)


def test_what_is_no_request_only_closes_its_connection(server):
    raw = Client(tuple(server.address), authkey=TOKEN)
    raw.send({"op": "count"})  # pickled, which is not read
    with pytest.raises(EOFError):
        raw.recv_bytes()
    again = Client(tuple(server.address), authkey=TOKEN)
    again.send_bytes(b'{"op": "anything", "with": 1}')
    assert json.loads(again.recv_bytes())["value"] == {"op": "anything", "with": 1}


def test_only_the_loopback_interface_listens(server):
    """Linux lists listening sockets (state 0A) with the address in hexadecimal."""
    own = {
        os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink() and path.exists()
    }
    inodes = {name.removeprefix("socket:[").rstrip("]") for name in own if name.startswith("socket:")}
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = {fields[1] for fields in lines if fields[3] == "0A" and fields[9] in inodes}
    assert f"0100007F:{server.address.port:04X}" in listening
    assert {place.partition(":")[0] for place in listening} == {"0100007F"}
