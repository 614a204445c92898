"""Settings of published serving systems, their published numbers, and sentences on differences."""

from typing import NamedTuple

WEAVE_GAINS = {
    ("llama-3.1-70b", 8): (1.16, 1.23, 1.26, 1.27, 1.27, 1.24, 1.19),
    ("llama-3.1-70b", 4): (1.13, 1.10, 1.13, 1.15, 1.14, 1.13, 1.11),
    ("qwen2.5-72b", 8): (1.14, 1.23, 1.25, 1.24, 1.24, 1.21, 1.24),
    ("qwen2.5-72b", 4): (1.12, 1.11, 1.10, 1.16, 1.13, 1.12, 1.06),
    ("mixtral-8x22b", 8): (0.62, 0.98, 1.13, 1.16, 1.18, 1.17, 1.13),
}
"""Latency without overlap over that with it, by model and tp, of prompts of 1k to 64k tokens."""
WEAVE_MS = {
    "without overlap": (53.7, 94.2, 179.5, 356.0, 744.1, 1639.9, 3917.7),
    "with overlap": (46.2, 76.7, 142.2, 279.8, 585.3, 1326.0, 3282.4),
}
"""Of Llama-3.3-70B with tp 8."""


class Section(NamedTuple):
    """What is known of a system's setting, and why prediction and publication differ."""

    setting: str
    baseline: str
    unknown: str
    why: str


OPENING = """# Gains of serving systems, predicted and published

Seven systems in the setting of their papers: model, devices, degrees, batch and lengths. Predictions take the forms of
[serving](../docs/serving.md#prediction) as they are; no constant is fitted to these papers. The abstracts and the
systems' own repositories were read; where the body of a paper was not at hand, its setting comes from public notes on
it or is listed as not read. The last column is the published gain of just the part that is predicted."""

CLOSING = """## In short

- Gains of overlap against the same engine without it (TokenWeave, NanoFlow's ablation) are near the published ones;
  T3's need collectives that leave products alone.
- Gains over another engine (NanoFlow's 1.91×) also contain that engine's kernels and host, which no form predicts.
- A layout for each phase (Seesaw) is predicted to pay where links are slow and memory is short, less in the mean than
  published.
- NVRAR's is predicted too large from 32 devices on, because of the library's latency for each doubling of nodes."""

SECTIONS = {
    "TokenWeave": Section(
        setting="""one prompt of 1k to 64k tokens and one output token; Llama-3.3-70B, Qwen2.5-72B and
        Mixtral-8x22B in 16 bit, tp 8 or 4 on 8 H100 (arXiv 2505.11329; `microsoft/tokenweave`, figure 11
        of its artifact). llama-3.1-70b has the same shapes""",
        baseline="its own vLLM 0.8.5 with all-reduces by the switch (`baseline_multimem`)",
        unknown="clock of the devices while measuring",
        why="""The seconds with overlap are within 4 %. Those without are up to 9 % too few from 8k tokens
        on: the baseline is predicted too fast, not the overlap too slow. Mixtral with short prompts is
        slower with TokenWeave than without; the form keeps such batches whole.""",
    ),
    "T3": Section(
        setting="""products with their all-reduce (OP and FC-2 forward, FC-1 and IP backward) of
        Mega-GPT-2 and T-NLG, tp 8 and 16, on simulated devices (arXiv 2401.16677). Here: a die of MI250X,
        the nearest in the catalogue, with 16 in one fast domain; hidden widths 3,072 and 4,256""",
        baseline="product, then ring all-reduce",
        unknown="""tokens of a batch (16k and 8k taken, unconfirmed), the simulated link's rate (the
        catalogue's 175 GB/s taken); no device with its memory, which adds up, exists""",
        why="""T3 moves data by DMA and adds up in memory, so that products lose little. The form `tile`
        has the slow-down of collectives that run on processors, as fitted on training. Without it the
        prediction is near the published 1.3.""",
    ),
    "NanoFlow": Section(
        setting="""Llama-2-70B in fp16, tp 8 on 8 A100 80 GB, as many requests as have room, a dense batch
        of 2,048 tokens; constant lengths and the mean lengths of three traces (arXiv 2408.12757;
        `efeslab/Nanoflow`)""",
        baseline="""TensorRT-LLM 0.8.0; 1.73× at constant lengths, 1.91× on traces. Its ablation against
        its own engine without overlap: 1.07× for prompts alone, 1.17× where decoding dominates""",
        unknown="""share of the host in the baseline (the repository says above 10 % of an iteration), its
        batch size and whether it splits prompts""",
        why="""What is predicted is the overlap, and that is as large as in NanoFlow's own ablation. The
        rest of the 1.91 is the distance between two engines: kernels, batches, and a host that the
        TensorRT-LLM of 2024 did not hide; today's takes 1 to 2 % of such an iteration.""",
    ),
    "NVRAR": Section(
        setting="""Llama-3.1-405B in bf16, tp over all devices of Perlmutter (nodes of 4 A100 80 GB, 4
        cards of 200 Gbit/s), decoding dominates (arXiv 2511.09557)""",
        baseline="NCCL in the same engine (YALIS); all-reduces of 128 KB to 2 MB: 1.9 to 3.6×",
        unknown="""devices, batch and lengths of the 1.72×: 16 to 128 devices, 8 and 32 prompts, 1,426
        tokens in and 3,072 out are taken, unconfirmed; which messages NVRAR leaves to NCCL""",
        why="""At 16 devices the prediction is near the published one. From 32 devices on it is more: the
        library's 30 µs for each doubling of nodes are a weak constant. Long messages of prompts go the
        library's way, so that the whole batch gains less than decoding.""",
    ),
    "EnergonAI": Section(
        setting="""one pass of prompts of half the padded length through layers of GPT-3 in fp16 on A100
        80 GB: 24 layers with tp 2, 48 with tp 4 (arXiv 2209.02341; its authors' announcement)""",
        baseline="FasterTransformer, which computes padding in tensor-parallel GPT",
        unknown="""batch and padded length of the −37%; 1 to 32 and 64 or 128 are taken. The announcement
        has FasterTransformer slightly ahead at a batch of 1, and EnergonAI more than 50 % faster at large
        ones""",
        why="""The form is the model's iteration with the tokens that are not padding, attention as with
        padding (its redundant computation elimination). −37% lies between a batch of 4 and of 8 prompts
        padded to 64, and half of all tokens cannot save more than half. Not covered: the 10 % better
        scaling of its non-blocking pipeline (both predictions have micro-batches under way for each
        stage), and peer memory pooling.""",
    ),
    "APEX": Section(
        setting="""Poisson arrivals of 0.25 requests/s with mean lengths of three traces (2742/172,
        307/1128, 73/189), fp16, 8 H100, 16 H100, 8 H200 (arXiv 2411.17651, tables 1 to 3 by public notes;
        `microsoft/apex_plus`)""",
        baseline="one replica, tp inside the node and pp between nodes",
        unknown="""rate of the rows on H200 and on two nodes (0.25 taken); cell-level data parallelism of
        dense models is not in the plan language, and so the second column is what to compare for them""",
        why="""Its end-to-end time adds up iterations of the busiest replica and leaves waiting out
        (`total_time` of its simulator). Replicas share the arrivals, so that each is idle for longer, and
        *busy seconds* become fewer though no request is answered earlier: the usual plan has the least
        mean latency at this rate. Creation is published with 4,028 s on one replica, while the 512
        requests of its public trace arrive within 2,082 s; busy seconds cannot be more than that, and why
        they are was not resolved. Nor was which plan gives the 3.37×; ranks of attention_dp that share
        experts are in our space and do not win here.""",
    ),
    "Seesaw": Section(
        setting="""an offline batch on one node: CodeLLaMA-34B and LLaMA2-70B in 16 bit on 8 devices, prompts of
        arxiv-summarization and of ShareGPT (arXiv 2503.06433; its abstract has the two gains, "up to 1.78x
        (1.36x on average)", over vLLM). Here: a closed loop of all requests of the batch, and on both sides the
        best of all replicas, tp, pp and three chunks; a layout for each phase is the only difference""",
        baseline="vLLM; here the best single layout, under the same engine",
        unknown="""the body was not read: devices (L4, A10 and A100 40 GB), models, data sets and their numbers of
        requests (500 and 2,000) are from general knowledge of it; lengths of arxiv-summarization (3,000 in, 200 out
        taken); those of ShareGPT are NanoFlow's; links and memory of the hosts of A10 (those of L4 taken); its
        third model, of 15B, is not in the zoo; which settings are in its mean""",
        why="""Over PCIe each layout wins a phase: of llama-2-70b on 8 A10 a prompt of 3,000 tokens takes 0.67 s of
        the devices with pp 8 and 1.50 s with tp 8, an iteration that decodes 252 ms and 63 ms. A change of the
        layout takes 0.6 s of a cycle of ten minutes. On NVLink tp costs a prompt less (0.23 s and 0.32 s), and one
        layout computes prompts among sequences that decode, which turns of the phases can not, so that the gain is
        near 1 or below. Not resolved: the published mean is higher. vLLM was an earlier release there, and which of
        its layouts are the baseline was not read; here all are tried. Tails of requests of unlike lengths are left
        out on both sides.""",
    ),
}
"""Texts may break lines anywhere; the page fills its own."""
