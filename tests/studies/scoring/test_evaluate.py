"""`sympformer eval`: runs and Hugging Face folders, text and probes, and every wrong use in one sentence."""

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from sympformer import cli, data
from sympformer.opening import Opened, open_model
from sympformer.studies.scoring.evaluate import open_text, open_trained, text_losses
from sympformer.training.checkpoint import Progress, save_best
from sympformer.training.config import TrainConfig
from sympformer.training.evaluate import evaluate_model
from sympformer.training.run import train

BLOCK = 32


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Prepared tokens of two tokenizers, and a run of two steps on the first."""
    torch.set_num_threads(1)
    place = tmp_path_factory.mktemp("eval")
    bpe = data.prepare("storybook:60", "bpe:300", place / "bpe", validation=0.2).folder
    other = data.prepare("storybook:60", "byte", place / "byte", validation=0.2).folder
    model = {"n_layer": 2, "n_head": 2, "d_model": 16, "block_size": BLOCK}
    options: dict[str, Any] = {"steps": 2, "batch_size": 2, "eval_tokens": 64, "sample_tokens": 2}
    train(TrainConfig.from_dict(options | {"model": model, "data": {"folder": str(bpe)}, "out": str(place / "run")}))
    return {"bpe": bpe, "byte": other, "run": place / "run"}


@pytest.fixture(scope="module")
def hf(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small GPT-2 with the tokenizer of the first data, as transformers saves it."""
    transformers = pytest.importorskip("transformers")
    tokenizer = data.load_tokenizer(folders["bpe"])
    folder = tmp_path_factory.mktemp("hf")
    config = transformers.GPT2Config(
        vocab_size=tokenizer.vocab_size, n_positions=BLOCK, n_embd=16, n_layer=2, n_head=2, initializer_range=0.5
    )
    torch.manual_seed(0)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folders["bpe"] / "tokenizer.json"), eos_token=tokenizer.decode([tokenizer.end_of_text])
    ).save_pretrained(folder)
    return folder


def run_eval(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    """What a command that succeeds prints."""
    capsys.readouterr()
    assert cli.main(["eval", *map(str, args)]) == 0
    return capsys.readouterr().out


def refusal(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    """What a command that must fail says: one line, and nothing on stdout."""
    capsys.readouterr()
    assert cli.main(["eval", *map(str, args)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    # transformers shows its own bar while it loads
    lines = [line for line in said.err.splitlines() if line and not line.startswith("Loading weights")]
    assert len(lines) == 1
    return lines[0]


def test_a_run_on_its_own_data(folders: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    run = open_model(folders["run"], "last")
    tokens = data.Tokens.open(folders["bpe"]).tokens("validation")
    expected = evaluate_model(run.model, data.validation_blocks(tokens, BLOCK), run.tokenizer.byte_lengths())
    shown = run_eval(capsys, folders["run"], "--which", "last")
    assert f"{expected.loss:.4f} nats per token ({len(tokens) - 1:,} tokens)" in shown
    assert f"{expected.perplexity:.3f} perplexity" in shown
    assert f"{expected.bits_per_byte:.4f} bits per byte" in shown
    assert "step 2" in shown
    assert "probes" not in shown
    fewer = run_eval(capsys, folders["run"], "--split", "train", "--tokens", 100)
    assert "(96 tokens)" in fewer
    assert "train of storybook" in fewer


def test_which_weights(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def watched(folder: Any, which: Any, **options: Any) -> Opened:
        asked.append(which)
        return open_model(folder, which, **options)

    monkeypatch.setattr("sympformer.opening.open_model", watched)
    open_trained(str(folders["run"]))
    open_trained(str(folders["run"]), "last")
    assert asked == ["best", "last"]


@pytest.mark.parametrize("kind", ["run", "hf"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_no_number(
    kind: str, value: float, folders: dict[str, Path], hf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Weights that are broken and say so nowhere: no figure is printed, and the exit code tells."""
    broken = Path(shutil.copytree(hf if kind == "hf" else folders["run"], tmp_path / "broken"))
    if kind == "hf":
        tensors = load_file(broken / "model.safetensors")
        tensors["transformer.wte.weight"][5] = value
        save_file(tensors, broken / "model.safetensors", {"format": "pt"})
    else:
        tensors = open_model(broken, "last").model.state_dict()
        next(iter(tensors.values()))[5] = value
        save_best(broken, Progress(step=2), tensors)
    assert cli.main(["eval", str(broken), "--data", str(folders["bpe"])]) == 2
    said = capsys.readouterr()
    assert "is not finite: its weights are of no use" in said.err.splitlines()[-1]
    assert "nats per token" not in said.out


def test_a_run_with_probes(folders: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    shown = run_eval(capsys, folders["run"], "--probes", "--tokens", 64)
    assert "bits per byte" in shown
    for name in ("cloze", "binding", "agreement", "attractor", "pronoun", "who"):
        assert name in shown
    assert "240 of 240 cloze probes" in shown  # told: the texts do not fit into 32 tokens


def test_a_hugging_face_folder(folders: dict[str, Path], hf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = run_eval(capsys, hf, "--probes")
    assert "agreement" in shown
    assert "nats per token" not in shown
    assert "nats per token" in run_eval(capsys, hf, "--data", folders["bpe"], "--tokens", 64)


def test_the_loss_of_a_hugging_face_folder(folders: dict[str, Path], hf: Path) -> None:
    """Against the plain sum over windows, one token after the other."""
    trained = open_trained(str(hf))
    prepared = open_text(trained, str(folders["bpe"]), "validation")
    assert prepared is not None
    result = text_losses(trained, prepared, "validation", tokens=320, batch_size=3)
    nats, count, size = 0.0, 0, 0
    for inputs, targets in data.validation_blocks(prepared.tokens("validation"), BLOCK, 320).batches(1):
        chances = trained.target.logits(torch.from_numpy(inputs)).double().softmax(-1)[0]
        for place, token in enumerate(targets[0].tolist()):
            nats -= math.log(float(chances[place, token]))
            size += len(prepared.tokenizer.decode([token]).encode()) if token != prepared.tokenizer.end_of_text else 0
            count += 1
    assert result.tokens == count == 320
    assert result.loss == pytest.approx(nats / count, abs=1e-5)
    assert result.bits_per_byte == pytest.approx(nats / math.log(2) / size, rel=1e-5)


def test_any_text(folders: dict[str, Path], hf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole of a file, in the model's own tokens: what scoring the prepared tokens gives."""
    run = open_model(folders["run"])
    stories = list(data.stories(20))
    (tmp_path / "mine.txt").write_text("<|endoftext|>".join(stories), encoding="utf-16")
    ids = run.tokenizer.encode_documents(stories)
    expected = evaluate_model(run.model, data.validation_blocks(ids, BLOCK), run.tokenizer.byte_lengths())
    options = ("--text", tmp_path / "mine.txt", "--encoding", "utf-16", "--separator", "<|endoftext|>")
    shown = run_eval(capsys, folders["run"], *options)
    assert f"all of {tmp_path / 'mine.txt'}, {BLOCK} tokens at once" in shown
    assert f"{expected.loss:.4f} nats per token ({len(ids) - 1:,} tokens)" in shown
    assert f"{expected.bits_per_byte:.4f} bits per byte" in shown
    assert f"({len(ids) - 1:,} tokens)" in run_eval(capsys, hf, *options)  # the same tokenizer
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_text_with_splits_of_its_own(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for split in ("train", "validation"):
        (tmp_path / f"{split}.txt").write_text(f"The {split} text. " * 30)
    assert f"validation of {tmp_path}" in run_eval(capsys, folders["run"], "--text", tmp_path)
    assert f"train of {tmp_path}" in run_eval(capsys, folders["run"], "--text", tmp_path, "--split", "train")
    assert "has no split 'test'" in refusal(capsys, folders["run"], "--text", tmp_path, "--split", "test")
    both = ("--text", tmp_path, "--data", folders["bpe"])
    assert "give --text (any corpus) or --data (prepared tokens), not both" in refusal(capsys, folders["run"], *both)


def test_probes_on_another_kind_of_text(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "law.txt").write_text("Redistribution in source or binary form requires retention of this notice. " * 9)
    shown = run_eval(capsys, folders["run"], "--text", tmp_path / "law.txt", "--probes")
    assert "nats per token" in shown
    assert "the probes do not apply: they are about children's stories, and" in shown
    assert "agreement" not in shown


def test_tokens_of_another_tokenizer(
    folders: dict[str, Path], hf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for target in (folders["run"], hf):
        assert "were made by another tokenizer than the model's" in refusal(
            capsys, target, "--data", folders["byte"], "--probes"
        )
    same_size = data.prepare("storybook:25", "bpe:300", tmp_path / "bpe", seed=5, validation=0.2).folder
    assert "it gives other ids for '" in refusal(capsys, hf, "--data", same_size)


def test_another_end_of_text(
    folders: dict[str, Path], hf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    transformers = pytest.importorskip("transformers")
    shutil.copytree(hf, tmp_path / "hf")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    tokenizer.eos_token = "e"
    tokenizer.save_pretrained(tmp_path / "hf")
    assert "a text ends with id 299, not " in refusal(capsys, tmp_path / "hf", "--data", folders["bpe"])


def test_a_folder_without_a_tokenizer(
    folders: dict[str, Path], hf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(hf, tmp_path / "hf", ignore=shutil.ignore_patterns("tokenizer*", "special*"))
    assert "has no tokenizer, and the probes are text" in refusal(capsys, tmp_path / "hf", "--probes")
    assert "the model comes without one" in refusal(capsys, tmp_path / "hf", "--data", folders["bpe"])


@pytest.mark.parametrize("target", ["softmax-exp-euler", "some.module:build", "model.py", "model.py:build"])
def test_only_trained_models(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"{target} has no trained weights: name a run's folder" in refusal(capsys, target)


def test_bad_folders_and_numbers(
    folders: dict[str, Path], hf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "is not the folder of a trained model" in refusal(capsys, tmp_path / "nothing")
    assert "holds no run and no Hugging Face model" in refusal(capsys, tmp_path)
    assert "tokens must be at least 1" in refusal(capsys, folders["run"], "--tokens", 0)
    assert "batch_size must be at least 1" in refusal(capsys, folders["run"], "--batch_size", 0)
    assert "has no split 'tset'" in refusal(capsys, folders["run"], "--split", "tset", "--probes")
    assert "brings no data of its own" in refusal(capsys, hf)
    assert "leave out --which" in refusal(capsys, hf, "--which", "last", "--probes")
    assert "does not exist" in refusal(capsys, folders["run"], "--data", tmp_path / "nothing")
