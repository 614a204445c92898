"""Compute logits and loss of a decoder, and of an encoder it reads, on one device, in plain PyTorch with autograd.

The formulas are those of ``model/numerics.py`` and ``model/router.py``; nothing is fused, recomputed or sharded. It
shares the model's data with the runtime and none of its code. Tensors are named as in ``model/named_tensors.py`` and
have one dtype, float64 or float32, in which everything is computed (angles are computed in float64 and rounded).
There is no dropout.

``encoder`` is an encoder's input: token ids (B, encoder tokens) of T5, patches (B, patches, elements) of Qwen2.5-VL
in windows and merged squares, whose ``images`` say how they lie (``workload/images.py``).

Sizes: B sequences, L positions, D hidden, H heads, K key-value heads, N elements of a head, F feed-forward, V words.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from meshwright.model.architecture import Architecture
from meshwright.model.encoder import TextEncoder, VisionEncoder
from meshwright.model.graph import ModelGraph
from meshwright.model.named_tensors import TOKEN_TABLE, named_buffers, runnable_numerics, stored_shapes
from meshwright.model.numerics import Mixing, Numerics
from meshwright.runtime.reference.adapter_products import with_products
from meshwright.runtime.reference.elementwise import capped, linear, normed
from meshwright.runtime.reference.feedforward import Sending, dense, routed
from meshwright.runtime.reference.latent_attention import latent_heads
from meshwright.runtime.reference.linear_attention import linear_attention_output
from meshwright.runtime.reference.routing import Choice, imbalance, moved
from meshwright.runtime.reference.softmax_attention import places, positioned, softmax_attention
from meshwright.runtime.reference.state_space import state_space_output
from meshwright.runtime.reference.text_encoder import cross_attended, decoder_bias, encoded_text
from meshwright.runtime.reference.vision_encoder import encoded_images, image_positions, section_positions
from meshwright.workload.images import Images

NO_LABEL = -100


def reference_loss(
    model: ModelGraph,
    tensors: Mapping[str, Tensor],
    tokens_BL: Tensor,
    labels_BL: Tensor,
    divisor: float,
    micro_batch: int | None = None,
    begins_BL: Tensor | None = None,
    sending: Sending | None = None,
    share: float = 1.0,
    *,
    encoder: Tensor | None = None,
    images: Images | None = None,
) -> Tensor:
    """Return the cross-entropy over all labels but ``NO_LABEL``, divided by ``divisor``, the global count of labels.

    Adds the weighted multi-token-prediction losses, and load-balancing losses averaged over these sequences, or over
    micro-batches of ``micro_batch`` consecutive ones (None: one micro-batch); a model with balancing losses needs the
    whole batch. ``begins_BL``: the position at which each token's document begins; None: each sequence is one
    document. ``sending`` limits what experts get. ``share``: the part of the batch that these sequences are, by
    which balancing losses count.
    """
    (logits_BLV, *further), choices = _run(
        model, tensors, tokens_BL, begins_BL, sending, encoder=encoder, images=images
    )
    arch = model.architecture
    loss = _summed(logits_BLV, labels_BL) / divisor
    for ahead, logits in enumerate(further, start=1):
        labels = labels_ahead(labels_BL, ahead, begins_BL)
        loss = loss + _summed(logits, labels) / divisor * arch.next_token_weight / len(further)
    routing = arch.numerics.routing
    if routing is not None and routing.balance is not None:
        for choice in choices:
            loss = loss + share * imbalance(routing.balance, choice, micro_batch or len(tokens_BL))
    return loss


def reference_logits(
    model: ModelGraph,
    tensors: Mapping[str, Tensor],
    tokens_BL: Tensor,
    begins_BL: Tensor | None = None,
    *,
    encoder: Tensor | None = None,
    images: Images | None = None,
) -> Tensor:
    """Return the logits of every position. Raises UnsupportedError for a model whose arithmetic is not supported."""
    return _run(model, tensors, tokens_BL, begins_BL, encoder=encoder, images=images)[0][0]


def _summed(logits_BLV: Tensor, labels_BL: Tensor) -> Tensor:
    logits_TV, labels_T = logits_BLV.flatten(0, 1), labels_BL.flatten()
    return functional.cross_entropy(logits_TV, labels_T, ignore_index=NO_LABEL, reduction="sum")


def labels_ahead(labels_BL: Tensor, by: int, begins_BL: Tensor | None) -> Tensor:
    """Return, for each position, the label ``by`` positions later in the same document."""
    ahead_BL = torch.full_like(labels_BL, NO_LABEL)
    for sequence, position in torch.cartesian_prod(*map(torch.arange, labels_BL.shape)).tolist():
        then = position + by
        inside = then < labels_BL.shape[1]
        if inside and (begins_BL is None or begins_BL[sequence, then] <= position):
            ahead_BL[sequence, position] = labels_BL[sequence, then]
    return ahead_BL


def reference_choices(
    model: ModelGraph,
    tensors: Mapping[str, Tensor],
    tokens_BL: Tensor,
    begins_BL: Tensor | None = None,
    sending: Sending | None = None,
) -> list[Choice]:
    """Return the router's choices in every routed layer for these sequences."""
    return _run(model, tensors, tokens_BL, begins_BL, sending)[1]


def reference_corrections(
    model: ModelGraph,
    tensors: Mapping[str, Tensor],
    tokens_BL: Tensor,
    begins_BL: Tensor | None = None,
    sending: Sending | None = None,
) -> dict[str, Tensor]:
    """Return the routers' corrections after a step on these sequences, by name."""
    routing, names = model.architecture.numerics.routing, named_buffers(model)
    if routing is None or not names:
        return {}
    choices = reference_choices(model, tensors, tokens_BL, begins_BL, sending)
    return {name: moved(routing, tensors[name], choice) for name, choice in zip(names, choices, strict=True)}


def _run(
    model: ModelGraph,
    tensors: Mapping[str, Tensor],
    tokens_BL: Tensor,
    begins_BL: Tensor | None,
    sending: Sending | None = None,
    *,
    encoder: Tensor | None = None,
    images: Images | None = None,
) -> tuple[list[Tensor], list[Choice]]:
    """Return the logits of the next and further tokens, and the choices of every routed layer."""
    numerics = runnable_numerics(model.architecture)
    missing = stored_shapes(model).keys() - tensors.keys()
    assert not missing, f"tensors are missing: {sorted(missing)}"
    assert begins_BL is None or model.architecture.encoder is None, (
        "documents are not packed behind an encoder"
    )
    begins_BL = torch.zeros_like(tokens_BL) if begins_BL is None else begins_BL
    decoder = Decoder(model.architecture, numerics, with_products(model, tensors), begins_BL, sending)
    decoder = decoder.after_encoder(encoder, images)
    hidden_BLD, arch, choices = decoder.embedded(tokens_BL), model.architecture, list[Choice | None]()
    plain = arch.main_layers
    for layer in range(plain):
        hidden_BLD = decoder.after_attention(layer, hidden_BLD)
        hidden_BLD, choice = decoder.fed_forward(layer, hidden_BLD)
        choices.append(choice)
    normed_BLD = decoder.before_head(hidden_BLD)
    logits = [decoder.projected(normed_BLD)]
    for module in range(arch.next_token_layers):
        tokens_BL = torch.cat([tokens_BL[:, 1:], torch.zeros_like(tokens_BL[:, :1])], 1)
        normed_BLD, choice = decoder.further(plain + module, normed_BLD, tokens_BL)
        logits.append(decoder.projected(normed_BLD))
        choices.append(choice)
    return logits, [choice for choice in choices if choice is not None]


@dataclass(frozen=True, slots=True)
class Decoder:
    """The parts of a decoder, in order; ``tensors`` may hold only some layers.

    ``begins``: the position at which each token's document begins, (B, L); ``sending`` limits what experts get.
    ``encoded``: an encoder's result; ``images``: how the images lie whose rows it is.
    """

    arch: Architecture
    numerics: Numerics
    tensors: Mapping[str, Tensor]
    begins: Tensor
    sending: Sending | None = None
    encoded: Tensor | None = None
    images: Images | None = None

    def after_encoder(self, given: Tensor | None, images: Images | None) -> "Decoder":
        """Return the decoder with the result of its encoder, if it has one, for the encoder's input."""
        encoder = self.arch.encoder
        if encoder is None:
            assert given is None, "there is no encoder"
            return self
        assert given is not None, "the encoder has no input"
        if isinstance(encoder, TextEncoder):
            encoded = encoded_text(self.arch, self.numerics, self.tensors, self._norm, given)
            return replace(self, encoded=encoded)
        assert images is not None
        encoded = encoded_images(encoder, images, self.tensors, given)
        return replace(self, encoded=encoded, images=images)

    def embedded(self, tokens_BL: Tensor) -> Tensor:
        """Return the residual stream before the first layer, from token ids and the rows of images."""
        x_BLD = self.tensors[TOKEN_TABLE][tokens_BL]
        x_BLD = x_BLD * x_BLD.new_tensor(self.numerics.embedding_multiplier)
        if self.images is not None and self.encoded is not None:
            x_BLD = torch.cat((self.encoded, x_BLD[:, self.encoded.shape[1] :]), dim=1)
        if self.arch.positions == "learned":
            x_BLD = x_BLD + self.tensors["embed.embed_positions.weight"][places(self.begins)]
        return self._norm("embed.embedding_layernorm", x_BLD) if self.arch.embedding_norm else x_BLD

    def after_attention(self, layer: int, x_BLD: Tensor) -> Tensor:
        """Return the stream with a layer's attention added."""
        unit = f"layers.{layer}"
        n_BLD = self._norm(f"{unit}.input_layernorm", x_BLD)
        mixer = self.arch.mixers[layer]
        if mixer == "state-space":
            y_BLD = state_space_output(self.arch, self.tensors, layer, n_BLD, self.begins)
        elif mixer == "linear":
            y_BLD = linear_attention_output(self.arch, self.numerics, self.tensors, layer, n_BLD, self.begins)
        else:
            y_BLD = self._softly_attended(layer, n_BLD)
        if self.arch.norms_per_layer == 4:
            y_BLD = self._norm(f"{unit}.post_attention_layernorm", y_BLD)
        x_BLD = self._mixed(self.numerics.mixing_of_attention(layer), x_BLD, n_BLD, y_BLD)
        if not isinstance(self.arch.encoder, TextEncoder):
            return x_BLD
        assert self.encoded is not None
        n_BLD = self._norm(f"{unit}.cross_attention_layernorm", x_BLD)
        return x_BLD + cross_attended(self.arch, self.tensors, layer, n_BLD, self.encoded)

    def _softly_attended(self, layer: int, x_BLD: Tensor) -> Tensor:
        name = f"layers.{layer}.self_attn"
        sinks_H = self.tensors[f"{name}.sinks"] if self.arch.attention_sinks else None
        heads = self._heads(layer, x_BLD) if self.arch.latent is None else self._latent_heads(layer, x_BLD)
        y_BLHN = softmax_attention(
            self.numerics, layer, self.arch.windows[layer], *heads, self.begins, sinks_H, self._bias(x_BLD)
        )
        return linear(self.tensors, f"{name}.o_proj", y_BLHN.flatten(2))

    def _mixed(self, mixing: Mixing, x_BLD: Tensor, n_BLD: Tensor, y_BLD: Tensor) -> Tensor:
        """Return the stream ``x``, or its norm ``n``, with a sublayer's result ``y`` added."""
        stream_BLD = n_BLD if self.arch.residual_after_norm else x_BLD
        return stream_BLD * mixing.stream + y_BLD * mixing.part

    def fed_forward(self, layer: int, x_BLD: Tensor) -> tuple[Tensor, Choice | None]:
        """Return the stream with a layer's feed-forward added, and the expert choice of a routed layer."""
        unit, four, moe = f"layers.{layer}", self.arch.norms_per_layer == 4, self.arch.moe
        before = "pre_feedforward_layernorm" if four else "post_attention_layernorm"
        n_BLD, choice = self._norm(f"{unit}.{before}", x_BLD), None
        if moe is not None and moe.layers[layer]:
            y_BLD, choice = routed(self.arch, moe, self.numerics, self.tensors, unit, n_BLD, self.sending)
        else:
            y_BLD = dense(self.arch, self.numerics, self.tensors, f"{unit}.mlp", n_BLD)
        if four:
            y_BLD = self._norm(f"{unit}.post_feedforward_layernorm", y_BLD)
        return self._mixed(self.numerics.feedforward_mixing, x_BLD, n_BLD, y_BLD), choice

    def further(self, layer: int, x_BLD: Tensor, tokens_BL: Tensor) -> tuple[Tensor, Choice | None]:
        """Return a prediction module's output from a normed stream and later tokens (DeepSeek-V3, eq. 21 and 22)."""
        unit = f"layers.{layer}"
        tokens_BLD = self._norm(f"{unit}.enorm", self.embedded(tokens_BL))
        stream_BLD = self._norm(f"{unit}.hnorm", x_BLD)
        y_BLD = linear(self.tensors, f"{unit}.eh_proj", torch.cat([tokens_BLD, stream_BLD], -1))
        y_BLD, choice = self.fed_forward(layer, self.after_attention(layer, y_BLD))
        return self._norm(f"{unit}.shared_head.norm", y_BLD), choice

    def before_head(self, x_BLD: Tensor) -> Tensor:
        """Return the normed last stream."""
        return self._norm("head.norm", x_BLD)

    def logits(self, x_BLD: Tensor) -> Tensor:
        """Return the logits of the last stream."""
        return self.projected(self.before_head(x_BLD))

    def projected(self, x_BLD: Tensor) -> Tensor:
        """Return the logits of a normed stream."""
        table_VD = self.tensors[TOKEN_TABLE if self.arch.tied_embeddings else "head.lm_head.weight"]
        logits_BLV = x_BLD @ table_VD.T / self.numerics.logit_divisor
        return capped(logits_BLV, self.numerics.logit_soft_cap)

    def _heads(self, layer: int, x_BLD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values by heads, after head norms and rotation."""
        name = f"layers.{layer}.self_attn"
        q_BLHN, k_BLKN, v_BLKN = (
            linear(self.tensors, f"{name}.{which}_proj", x_BLD).unflatten(2, (-1, self.arch.head_dim))
            for which in "qkv"
        )
        if self.arch.qk_norm:
            q_BLHN, k_BLKN = self._norm(f"{name}.q_norm", q_BLHN), self._norm(f"{name}.k_norm", k_BLKN)
        turns_LP = self._turns(x_BLD.shape[1])
        return *positioned(self.numerics, layer, q_BLHN, k_BLKN, self.begins, turns_LP), v_BLKN

    def _turns(self, length: int) -> Tensor | None:
        """Return the position that each pair of a head turns with, for sequences with images."""
        encoder = self.arch.encoder
        if self.images is None or not isinstance(encoder, VisionEncoder):
            return None
        positions_L3 = image_positions(encoder, self.images, length)
        return section_positions(self.numerics.rotary_sections, positions_L3)

    def _bias(self, x_BLD: Tensor) -> Tensor | None:
        """Return the scores of relative positions, for models that learn them."""
        encoder = self.arch.encoder
        if not isinstance(encoder, TextEncoder):
            return None
        return decoder_bias(encoder, self.tensors, x_BLD.shape[1])

    def _latent_heads(self, layer: int, x_BLD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the heads of latent attention, whose norms of compressed rows have their own ε."""
        latent, rotary = self.arch.latent, self.numerics.rotary[layer]
        assert latent is not None
        assert rotary is not None
        norm = partial(self._norm, epsilon=self.numerics.latent_norm_epsilon)
        return latent_heads(
            latent, rotary, self.tensors, f"layers.{layer}.self_attn", norm, x_BLD, self.begins
        )

    def _norm(self, name: str, x: Tensor, epsilon: float | None = None) -> Tensor:
        weight, bias = self.tensors.get(f"{name}.weight"), self.tensors.get(f"{name}.bias")
        epsilon = self.arch.norm_epsilon if epsilon is None else epsilon
        x = normed(x, centred=self.arch.centred_norms, epsilon=epsilon)
        x = x if weight is None else x * (self.numerics.norm_offset + weight)
        return x if bias is None else x + bias
