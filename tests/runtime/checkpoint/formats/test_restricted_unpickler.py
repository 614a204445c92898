"""Pickles of metadata are read without running anything that they name."""

import io
import os
import pickle
from collections import OrderedDict
from pathlib import PosixPath

import pytest
import torch
from torch.distributed.checkpoint.metadata import MetadataIndex, StorageMeta, TensorProperties

from meshwright.errors import InputError
from meshwright.runtime.checkpoint.formats.restricted_unpickler import unpickled, unpickled_archive


class Touch:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return PosixPath.touch, (self.path,)


class Made:
    """Creates a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def archive(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("value", [Touch, Made])
@pytest.mark.parametrize(("packed", "read"), [(pickle.dumps, unpickled), (archive, unpickled_archive)])
def test_a_harmful_pickle_creates_no_file(tmp_path, value, packed, read):
    content, path = packed({"model": value(tmp_path / "made")}), tmp_path / "made"
    with pytest.raises(
        InputError, match=r"asks for (pathlib\.Path|builtins|__builtin__|posix)\.\w+, which.*--trust"
    ):
        read(content, "a/.metadata")
    assert not path.exists()
    read(content, "a/.metadata", trust=True)
    assert path.exists()


def test_metadata_become_records_of_no_class_of_torch():
    index, properties = MetadataIndex("a.weight", [0, 4]), TensorProperties(dtype=torch.bfloat16)
    content = pickle.dumps({index: properties, "meta": StorageMeta(PosixPath("/a/b")), "o": OrderedDict(a=1)})
    found = unpickled(content, ".metadata")
    key = next(of for of in found if not isinstance(of, str))
    assert (key.fqn, key.offset) == ("a.weight", (0, 4))
    assert found[key].values[0] == "bfloat16"
    assert (found["meta"].checkpoint_id, found["o"]) == ("/a/b", {"a": 1})
    assert not {type(key), type(found[key])} & {MetadataIndex, TensorProperties}


def test_a_pickle_cannot_change_a_class_of_the_next():
    program = (
        b"\x80\x04ctorch.distributed.checkpoint.metadata\nMetadata\n"  # the class itself, and attributes to set on it
        b"N}\x8c\x06valuesK\x01s\x86b."
    )
    with pytest.raises(InputError, match="cannot be read"):
        unpickled(program, ".metadata")
    assert unpickled(pickle.dumps(StorageMeta("here")), ".metadata").checkpoint_id == "here"


@pytest.mark.parametrize("content", [b"", b"no pickle", pickle.dumps({"a": 1})[:-3]])
def test_what_is_no_pickle_is_named(content):
    with pytest.raises(InputError, match=r"a/\.metadata.*cannot be read"):
        unpickled(content, "a/.metadata")
