"""Encoders turn text into token ids: the interface, and the simplest one, where a byte is a token."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import InputError, Problem

BYTES = "bytes"
"""The name of the byte encoder, given in place of a tokenizer."""


class Encoder(Protocol):
    """Text to ids. ``identity`` differs between encoders that give different ids for the same text."""

    @property
    def vocab(self) -> int:
        """Upper bound of all ids, exclusive."""
        ...

    @property
    def end_of_document(self) -> int:
        """The id after each document; no text is encoded as it."""
        ...

    @property
    def identity(self) -> str:
        """Text that is equal for two encoders exactly if their ids are."""
        ...

    @property
    def saved(self) -> str | None:
        """The text of the ``tokenizer.json`` that gives the same ids; None if there is none."""
        ...

    def encode(self, texts: Sequence[str]) -> list[NDArray[np.uint32]]:
        """Return the ids of each text."""
        ...


class ByteEncoder:
    """The bytes of UTF-8 as ids 0 to 255; 256 ends a document."""

    vocab = 257
    end_of_document = 256
    identity = BYTES
    saved = None

    def encode(self, texts: Sequence[str]) -> list[NDArray[np.uint32]]:
        """Return the bytes of each text as ids."""
        return [np.frombuffer(text.encode(), np.uint8).astype(np.uint32) for text in texts]


def check_room(vocab: int) -> None:
    """Check that the vocabulary holds each byte and the end of a document. Raises InputError."""
    if vocab < ByteEncoder.vocab:
        rule = f"vocabulary >= {ByteEncoder.vocab}: every byte and the end of a document need an entry"
        raise InputError(Problem("model.vocab", vocab, rule, "give data as token shards (.npy, .bin)"))
