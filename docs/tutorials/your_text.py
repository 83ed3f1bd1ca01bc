"""Your text to a model.

From a folder of text to a model that continues it, in Python; the same is two lines of shell, given at the end. About
four minutes on two cores with the numbers below. They are small: this is to see every part once.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from sympformer.data import stories
from sympformer.opening import Opened, open_model
from sympformer.training.config import DataConfig, TrainConfig
from sympformer.training.run import train as train_run


@dataclass(frozen=True)
class Size:
    """How large everything is; a test takes a smaller one."""

    stories: int = 2000
    tokenizer: str = "bpe:1024"
    steps: int = 300
    n_layer: int = 4
    d_model: int = 64
    block_size: int = 128


def main(folder: Path, size: Size) -> Opened:
    """Write text, train, look at what came out."""
    texts = some_text(folder / "texts", size)
    out = train(texts, folder / "run", size)
    return look_at(out)


# ## Text
#
# A corpus is a file or a folder: `.txt`, `.jsonl`, `.csv`, `.parquet`, plain or `.gz` ([data](../data.md)). So that
# this page needs no download, the package tells stories of its own into a file; put your own text in its place. Blank
# lines separate documents here, which `separator` says: by itself a file of text is one document.
def some_text(folder: Path, size: Size) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stories.txt").write_text("\n\n".join(stories(size.stories)), encoding="utf-8")
    return folder


# ## Train
#
# One object is the whole recipe: model, data, length, rate. The tokenizer is trained on the text. A twentieth of the
# documents is held out, and the loss on them is what counts. What is run is written down: the folder holds the recipe,
# the code's version, the machine and the checksums of the data.
def train(texts: Path, out: Path, size: Size) -> Path:
    config = TrainConfig(
        model={
            "variant": "softmax-exp-euler",
            "n_layer": size.n_layer,
            "d_model": size.d_model,
            "n_head": 4,
            "block_size": size.block_size,
        },
        data=DataConfig(corpus=str(texts), separator="blank", tokenizer=size.tokenizer),
        steps=size.steps,
        eval_every=max(size.steps // 3, 1),
        out=str(out),
    )
    train_run(config)
    return out


# ## Look at it
#
# `open_model` needs nothing but the folder. Bits per byte compare models with different tokenizers; nats per token do
# not. The learned step sizes and dampings, layer by layer, are in `metrics.jsonl`.
def look_at(out: Path) -> Opened:
    run = open_model(out)
    print(run.model.describe())
    print(run.sample("One day", max_new_tokens=60, seed=0))
    return run


# ## The same in the shell
#
#     sympformer train --data.corpus my-texts/ --data.separator blank --tokens 600000 --out runs/mine
#     sympformer sample runs/mine --prompt "One day"
#
# Then [audit it](looking_ahead.md), [score it](../probes.md), [compare it](../comparing.md) with a GPT that had the
# same budget, or [export it](../huggingface.md). If a run is cut off, `--resume` continues it bit for bit.
if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]), Size())
    else:
        with TemporaryDirectory() as place:
            main(Path(place), Size())
