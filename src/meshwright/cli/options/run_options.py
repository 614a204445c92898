"""Options of ``run``, one type for each: those of training, then those of an emulated step.

None stands for the default of ``runtime/training/options.py``, which the help names.
"""

from pathlib import Path
from typing import Annotated

import typer

Steps = Annotated[int | None, typer.Option("--steps", help="Optimizer steps; needed to train.")]
Data = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        metavar="PATH",
        help="Text, .jsonl or token files, or folders; synthetic if not given. Repeatable.",
    ),
]
Tokenizer = Annotated[
    str | None,
    typer.Option(
        "--tokenizer", help="A tokenizer.json, its folder, or bytes; the model's, or learnt if not given."
    ),
]
EndOfDocument = Annotated[
    str | None,
    typer.Option("--end-of-document", help="The token that ends a document; its id in token files."),
]
MaskDocumentStarts = Annotated[
    bool, typer.Option("--mask-document-starts", help="Leave the first token of a document out of the loss.")
]
Cache = Annotated[
    Path | None,
    typer.Option("--cache", help="Where tokenised texts are kept; ~/.cache/meshwright if not given."),
]
LearningRate = Annotated[
    float | None, typer.Option("--lr", metavar="NUMBER", help="Highest learning rate; 3e-4 if not given.")
]
Schedule = Annotated[
    str | None,
    typer.Option("--schedule", help="constant, cosine, linear, wsd or inverse-sqrt; cosine if not given."),
]
Warmup = Annotated[int | None, typer.Option("--warmup", help="Steps of warm-up; 0 if not given.")]
Floor = Annotated[
    float | None,
    typer.Option(
        "--lr-floor", metavar="NUMBER", help="Lowest rate as a part of the highest; 0.1 if not given."
    ),
]
DecaySteps = Annotated[
    int | None, typer.Option("--decay-steps", help="Steps of decay of wsd; a tenth of all if not given.")
]
Beta1 = Annotated[
    float | None,
    typer.Option(
        "--beta1", metavar="NUMBER", help="First decay rate of AdamW or Lion; the plan's if not given."
    ),
]
Beta2 = Annotated[
    float | None,
    typer.Option(
        "--beta2", metavar="NUMBER", help="Second decay rate of AdamW or Lion; the plan's if not given."
    ),
]
Epsilon = Annotated[
    float | None, typer.Option("--eps", metavar="NUMBER", help="AdamW's epsilon; the plan's if not given.")
]
WeightDecay = Annotated[
    float | None,
    typer.Option("--weight-decay", metavar="NUMBER", help="For matrices; the plan's if not given."),
]
Clip = Annotated[
    float | None,
    typer.Option(
        "--clip", metavar="NUMBER", help="Largest norm of gradients, 0 for no limit; 1 if not given."
    ),
]
Seed = Annotated[
    int | None, typer.Option("--seed", help="Seed of random weights and the order of data; 0 if not given.")
]
Precision = Annotated[
    str | None, typer.Option("--precision", help="bf16, fp32 or fp64; the plan's if not given.")
]
EvaluateEvery = Annotated[
    int | None,
    typer.Option("--eval-every", help="Steps between losses on held-out data; never if not given."),
]
HeldOut = Annotated[
    float | None,
    typer.Option(
        "--held-out", metavar="NUMBER", help="The part of the data that is held out; 0.01 if not given."
    ),
]
Output = Annotated[
    Path | None, typer.Option("-o", "--out", help="Folder of metrics and checkpoints; run if not given.")
]
CheckpointEvery = Annotated[
    int | None,
    typer.Option("--checkpoint-every", help="Steps between checkpoints; at the end alone if not given."),
]
CheckpointAsync = Annotated[
    bool, typer.Option("--checkpoint-async", help="Save checkpoints while the next steps run.")
]
CheckpointBuffer = Annotated[
    float | None,
    typer.Option(
        "--checkpoint-buffer",
        metavar="GIB",
        help="Most host memory of a rank for --checkpoint-async; its shard if not given.",
    ),
]
CheckpointLocal = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint-local",
        metavar="FOLDER",
        help="A folder on a disk of the host that --checkpoint-async writes to first.",
    ),
]
Keep = Annotated[int | None, typer.Option("--keep", help="Checkpoints that are kept; 2 if not given.")]
KeepEvery = Annotated[
    int | None,
    typer.Option("--keep-every", help="Also keep the checkpoints of steps that this divides."),
]
Resume = Annotated[
    str | None, typer.Option("--resume", help="auto, never, or a checkpoint; auto (the newest) if not given.")
]
Initial = Annotated[
    str | None, typer.Option("--init", metavar="FOLDER", help="Begin with these Hugging Face weights.")
]
Export = Annotated[
    str | None, typer.Option("--export", metavar="FOLDER", help="Write Hugging Face weights here at the end.")
]
Cpu = Annotated[bool, typer.Option("--cpu", help="Train on the CPU, accelerators or not.")]
Force = Annotated[bool, typer.Option("--force", help="Start although memory is predicted not to suffice.")]

Inject = Annotated[
    list[str] | None,
    typer.Option(
        "--inject",
        metavar="KIND:SETTINGS",
        help="Inject a fault: KIND:rank=R,step=S[,factor=F]; link also takes peer=P. Repeatable.",
    ),
]
HashEvery = Annotated[
    int | None,
    typer.Option(
        "--hash-every", help="Compare copies of states every so many steps; 100 if not given, 0 never."
    ),
]
HangS = Annotated[
    float | None,
    typer.Option(
        "--hang-s", metavar="SECONDS", help="A rank without progress for so long hangs; 300 if not given."
    ),
]
OnFault = Annotated[
    str | None,
    typer.Option("--on-fault", help="stop, restart, replan or shrink when a rank fails; stop if not given."),
]
MaxRestarts = Annotated[
    int | None,
    typer.Option("--max-restarts", help="Recoveries from the same fault at the same step; 3 if not given."),
]
Listen = Annotated[
    str | None,
    typer.Option(
        "--listen", metavar="HOST:PORT", help="Where processes may join the run; loopback if not given."
    ),
]
Join = Annotated[
    str | None, typer.Option("--join", metavar="HOST:PORT", help="Join the run that listens there.")
]
TensorBoard = Annotated[
    bool, typer.Option("--tensorboard", help="Also write metrics for TensorBoard into the output folder.")
]
Prometheus = Annotated[
    str | None,
    typer.Option("--prometheus", metavar="HOST:PORT", help="Serve metrics for Prometheus; needs its extra."),
]

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Change the plan: cluster='a100-sxm-80gb x 32'. Repeatable."
    ),
]
Emulate = Annotated[
    bool,
    typer.Option(
        "--emulate",
        help="Real interpreter and messages on local processes, compute slept at modelled times.",
    ),
]
Ranks = Annotated[
    int | None,
    typer.Option(
        "--ranks",
        help="Emulation: local processes, at most 16: more than pipeline ranks make collectives real.",
    ),
]
Limit = Annotated[
    float | None,
    typer.Option("--limit", metavar="NUMBER", help="Emulation: seconds that it may take; 600 if not given."),
]
Trace = Annotated[
    Path | None, typer.Option("--trace", help="Emulation: write the step as a Perfetto trace (JSON).")
]
