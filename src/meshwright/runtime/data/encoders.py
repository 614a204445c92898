"""Encoders make token ids of text: the interface, and the plainest one, where a byte is a token."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import InputError, Problem

BYTES = "bytes"
"""The name of the byte encoder where a tokenizer is named."""


class Encoder(Protocol):
    """Text to ids. ``identity`` tells encoders apart that make other ids of the same text."""

    @property
    def vocab(self) -> int:
        """All ids are below."""
        ...

    @property
    def end_of_document(self) -> int:
        """The id behind each document; no text is encoded as it."""
        ...

    @property
    def identity(self) -> str:
        """Equal where, and only where, the ids are."""
        ...

    @property
    def saved(self) -> str | None:
        """The text of the ``tokenizer.json`` that makes the same ids, where one does."""
        ...

    def encode(self, texts: Sequence[str]) -> list[NDArray[np.uint32]]:
        """The ids of each text."""
        ...


class ByteEncoder:
    """The bytes of UTF-8 as ids 0 to 255; 256 ends a document."""

    vocab = 257
    end_of_document = 256
    identity = BYTES
    saved = None

    def encode(self, texts: Sequence[str]) -> list[NDArray[np.uint32]]:
        """The bytes of each text."""
        return [np.frombuffer(text.encode(), np.uint8).astype(np.uint32) for text in texts]


def check_room(vocab: int) -> None:
    """A model needs an entry for each byte and one for the end of a document. Raises InputError."""
    if vocab < ByteEncoder.vocab:
        rule = f"vocabulary >= {ByteEncoder.vocab}: every byte and the end of a document need an entry"
        raise InputError(Problem("model.vocab", vocab, rule, "give data as token shards (.npy, .bin)"))
