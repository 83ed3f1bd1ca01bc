"""`sympformer eval`: runs and Hugging Face folders, text and probes, and every wrong use in one sentence."""

import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from sympformer import cli, data
from sympformer.opening import open_model
from sympformer.studies.scoring.eval import stored_tokens, text_losses
from sympformer.training.checkpoint import Progress, model_tensors, save_best
from sympformer.training.evaluate import Evaluation, evaluate_model

BLOCK = 32


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SYMPFORMER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tokens of two tokenizers, a run of two steps on the first, and a small GPT-2 with its tokenizer."""
    transformers = pytest.importorskip("transformers")
    torch.set_num_threads(1)
    place = tmp_path_factory.mktemp("eval")
    bpe = data.prepare("storybook:60", "bpe:300", place / "bpe", validation=0.2)
    data.prepare("storybook:60", "byte", place / "byte", validation=0.2)
    sizes = [f"--model.{name}={size}" for name, size in (("n_layer", 2), ("n_head", 2), ("d_model", 16))]
    few = [f"--model.block_size={BLOCK}", "--steps=2", "--batch_size=2", "--eval_tokens=64", "--sample_tokens=2"]
    assert cli.main(["train", f"--data.folder={bpe.folder}", *sizes, *few, f"--out={place / 'run'}"]) == 0
    config = transformers.GPT2Config(
        vocab_size=bpe.tokenizer.vocab_size, n_positions=BLOCK, n_embd=16, n_layer=2, n_head=2, initializer_range=0.5
    )
    torch.manual_seed(0)
    transformers.GPT2LMHeadModel(config).save_pretrained(place / "hf")
    transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(bpe.folder / "tokenizer.json"),
        eos_token=bpe.tokenizer.decode([bpe.tokenizer.end_of_text]),
    ).save_pretrained(place / "hf")
    return place


def run_eval(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    """What a command that succeeds prints."""
    capsys.readouterr()
    assert cli.main(["eval", *map(str, args)]) == 0
    return capsys.readouterr().out


def expected(place: Path, ids: object, which: str = "best") -> Evaluation:
    model, tokenizer = open_model(place / "run", which).ours()  # type: ignore[arg-type]
    return evaluate_model(model, data.validation_blocks(ids, BLOCK), tokenizer.byte_lengths())  # type: ignore[arg-type]


def test_a_run_on_its_own_data(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokens = data.Tokens.open(place / "bpe").tokens("validation")
    figures = expected(place, tokens, "last")
    shown = run_eval(capsys, place / "run", "--which", "last")
    assert f"{figures.loss:.4f} nats per token ({len(tokens) - 1:,} tokens)" in shown
    assert f"{figures.perplexity:.3f} perplexity" in shown
    assert f"{figures.bits_per_byte:.4f} bits per byte" in shown
    assert "step 2" in shown
    assert "probes" not in shown
    fewer = run_eval(capsys, place / "run", "--split", "train", "--tokens", 100)
    assert "(96 tokens)" in fewer
    assert "train of storybook" in fewer


@pytest.mark.parametrize("kind", ["run", "hf"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_no_number(
    kind: str, value: float, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Weights that are broken and say so nowhere: no figure is printed, and the exit code tells."""
    broken = Path(shutil.copytree(place / kind, tmp_path / "broken"))
    if kind == "run":
        tensors = model_tensors(open_model(broken).ours()[0])
        next(iter(tensors.values()))[5] = value
        save_best(broken, Progress(step=2), tensors)
    else:
        tensors = load_file(broken / "model.safetensors")
        tensors["transformer.wte.weight"][5] = value
        save_file(tensors, broken / "model.safetensors", {"format": "pt"})
    assert cli.main(["eval", str(broken), "--data", str(place / "bpe")]) == 2
    said = capsys.readouterr()
    assert "is not finite: its weights are of no use" in said.err.splitlines()[-1]
    assert "nats per token" not in said.out


def test_probes(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = run_eval(capsys, place / "run", "--probes", "--tokens", 64)
    assert "bits per byte" in shown
    for name in ("cloze", "binding", "agreement", "attractor", "pronoun", "who"):
        assert name in shown
    assert "240 of 240 cloze probes" in shown  # told: the texts do not fit into 32 tokens
    shown = run_eval(capsys, place / "hf", "--probes")
    assert "agreement" in shown
    assert "nats per token" not in shown
    law = tmp_path / "law.txt"
    law.write_text("Redistribution in source or binary form requires retention of this notice. " * 9)
    shown = run_eval(capsys, place / "run", "--text", law, "--probes")
    assert "nats per token" in shown
    assert "the probes do not apply: they are about children's stories, and" in shown
    assert "agreement" not in shown


def test_the_loss_of_a_hugging_face_folder(place: Path) -> None:
    """Against the plain sum over windows, one token after the other."""
    opened = open_model(place / "hf")
    tokens = stored_tokens(opened, str(place / "bpe"))
    assert tokens is not None
    result = text_losses(opened, tokens, "validation", tokens=320, batch_size=3)
    nats, count, size = 0.0, 0, 0
    for inputs, targets in data.validation_blocks(tokens.tokens("validation"), BLOCK, 320).batches(1):
        chances = opened.logits(torch.from_numpy(inputs)).double().softmax(-1)[0]
        for at, token in enumerate(targets[0].tolist()):
            nats -= math.log(float(chances[at, token]))
            size += len(tokens.tokenizer.decode([token]).encode()) if token != tokens.tokenizer.end_of_text else 0
            count += 1
    assert result.tokens == count == 320
    assert result.loss == pytest.approx(nats / count, abs=1e-5)
    assert result.bits_per_byte == pytest.approx(nats / math.log(2) / size, rel=1e-5)


def test_any_text(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole of a file, in the model's own tokens: what scoring the prepared tokens gives."""
    stories = list(data.stories(20))
    (tmp_path / "mine.txt").write_text("<|endoftext|>".join(stories), encoding="utf-16")
    ids = open_model(place / "run").ours()[1].encode_documents(stories)
    figures = expected(place, ids)
    options = ("--text", tmp_path / "mine.txt", "--encoding", "utf-16", "--separator", "<|endoftext|>")
    shown = run_eval(capsys, place / "run", *options)
    assert f"all of {tmp_path / 'mine.txt'}, {BLOCK} tokens at once" in shown
    assert f"{figures.loss:.4f} nats per token ({len(ids) - 1:,} tokens)" in shown
    assert f"{figures.bits_per_byte:.4f} bits per byte" in shown
    assert f"({len(ids) - 1:,} tokens)" in run_eval(capsys, place / "hf", *options)  # the same tokenizer
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    for split in ("train", "validation"):  # a folder with splits of its own
        (tmp_path / f"{split}.txt").write_text(f"The {split} text. " * 30)
    assert f"validation of {tmp_path}" in run_eval(capsys, place / "run", "--text", tmp_path)
    assert f"train of {tmp_path}" in run_eval(capsys, place / "run", "--text", tmp_path, "--split", "train")


@pytest.fixture(scope="module")
def odd(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The GPT-2 without a tokenizer, and with one whose texts end otherwise."""
    transformers = pytest.importorskip("transformers")
    odd = tmp_path_factory.mktemp("odd")
    shutil.copytree(place / "hf", odd / "mute", ignore=shutil.ignore_patterns("tokenizer*", "special*"))
    shutil.copytree(place / "hf", odd / "end")
    tokenizer = transformers.AutoTokenizer.from_pretrained(odd / "end")
    tokenizer.eos_token = "e"
    tokenizer.save_pretrained(odd / "end")
    (odd / "a.txt").write_text("A text. " * 50)
    (odd / "none").mkdir()
    return odd


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("softmax-exp-euler", "has no trained weights: name a run's folder"),
        ("torch.nn:Linear", "failed when called without arguments"),
        ("{odd}/nothing", "does not exist"),
        ("{odd}/none", "holds no model"),
        ("{run} --tokens 0", "tokens must be at least 1"),
        ("{run} --batch_size 0", "batch_size must be at least 1"),
        ("{run} --split tset --probes", "has no split 'tset'"),
        ("{run} --text {odd}/a.txt --split test", "has no split 'test'"),
        ("{run} --text {odd}/a.txt --data {bpe}", "give --text (any corpus) or --data (prepared tokens), not both"),
        ("{run} --data {odd}/nothing", "does not exist"),
        ("{run} --data {byte} --probes", "were made by another tokenizer than the model's (byte)"),
        ("{hf} --data {byte}", "were made by another tokenizer than the model's (byte)"),
        ("{hf}", "brings no data of its own"),
        ("{hf} --which last --probes", "leave out --which"),
        ("{odd}/end --text {odd}/a.txt", "a text ends with id 299, not "),
        ("{odd}/mute --probes", "has no tokenizer, and the probes are text"),
        ("{odd}/mute --data {bpe}", "no tokenizer in "),
    ],
)
def test_refusals(words: str, why: str, place: Path, odd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {name: str(place / name) for name in ("run", "hf", "bpe", "byte")}
    assert cli.main(["eval", *(word.format(odd=odd, **names) for word in words.split())]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert why in said.err.splitlines()[-1]
