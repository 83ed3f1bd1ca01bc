"""`sympformer eval`: runs and Hugging Face folders, text and probes, wrong uses in one sentence; scores of probes."""

import math
import shutil
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from sympformer import cli, data
from sympformer.data.probes import KINDS, Probe, probe_set
from sympformer.errors import DivergenceError, InputError
from sympformer.models import VARIANTS, LanguageModel, build_model, variant
from sympformer.opening import open_model
from sympformer.studies.scoring.eval import stored_tokens, text_losses
from sympformer.studies.scoring.probes import (
    credit,
    cut_note,
    encode_probe,
    log_likelihoods,
    score_probes,
    standard_error,
)
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
        tokenizer_file=str(bpe.folder / "tokenizer.json"), eos_token=bpe.tokenizer.decode([bpe.tokenizer.end_of_text])
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
def test_a_loss_that_is_no_number(kind: str, value: float, place: Path, tmp_path: Path, capsys: Any) -> None:
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


# --- scoring: the right and the wrong oracle, ties, a slow obvious twin, boundaries, cuts, and every variant
CHARACTERS, VOCABULARY = 128, 192
PAIRS = ("he", " a", "th", "er", "as", "re")  # `he` is one token, also inside `she`, so that choices share beginnings


def encode(text: str) -> list[int]:
    """A tokenizer of bytes and some pairs."""
    ids, at = [], 0
    while at < len(text):
        pair = text[at : at + 2]
        ids.append(CHARACTERS + PAIRS.index(pair) if pair in PAIRS else ord(text[at]))
        at += 2 if pair in PAIRS else 1
    return ids


def small_model(name: str = "softmax-exp-euler", block_size: int = 400) -> LanguageModel:
    cfg = variant(name, n_layer=2, n_head=2, d_model=16, block_size=block_size, vocab_size=VOCABULARY)
    model = build_model(cfg, seed=0).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


def uniform(idx: Tensor) -> Tensor:
    return torch.zeros(*idx.shape, VOCABULARY)


def prefixes(ids: list[int]) -> list[int]:
    """A number for every beginning of a text."""
    return list(accumulate(ids, lambda before, token: hash((before, token))))


def oracle(likes_right: bool) -> Callable[[Tensor], Tensor]:
    """Knows every probe by heart: likely is the next token of a right text, or of any wrong one."""
    following: dict[int, set[int]] = {}
    for probe in (probe for kind in KINDS for probe in probe_set(kind)):
        for i, text in enumerate(probe.texts):
            if (i == probe.answer) == likes_right:
                ids = encode(text)
                for prefix, token in zip(prefixes(ids), ids[1:], strict=False):
                    following.setdefault(prefix, set()).add(token)

    def logits(idx: Tensor) -> Tensor:
        out = uniform(idx)
        for row, ids in enumerate(idx.tolist()):
            known = [(place, t) for place, p in enumerate(prefixes(ids)) for t in following.get(p, ())]
            out[row, [place for place, _ in known], [token for _, token in known]] = 30.0
        return out

    return logits


@pytest.mark.parametrize(("likes_right", "accuracy"), [(True, 1.0), (False, 0.0)])
def test_oracles(likes_right: bool, accuracy: float) -> None:
    scores = score_probes(oracle(likes_right), encode, None)
    assert list(scores) == list(KINDS)
    for score in scores.values():
        assert score.accuracy == accuracy
        assert score.standard_error == 0.0
        assert (score.margin > 20) if likes_right else (score.margin < -20)
        assert {form.accuracy for form in score.forms.values()} == {accuracy}


def test_a_model_that_does_not_read_is_at_chance_exactly() -> None:
    """Whatever it likes, short or frequent words: every word is right as often as the others it stands beside."""
    likings = torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(2))
    for logits in (uniform, lambda idx: likings.expand(*idx.shape, -1)):
        for score in score_probes(logits, encode, None).values():
            for one in (score, *score.forms.values()):
                assert one.accuracy == pytest.approx(one.chance, abs=1e-12)


@pytest.mark.parametrize(
    ("likelihoods", "answer", "points"),
    [([-1.0, -1.0, -2.0], 0, 0.5), ([-1.0, -1.0, -2.0], 2, 0.0), ([-3.0] * 4, 1, 0.25), ([-3.0, -1.0], 1, 1.0)],
)
def test_ties_share_the_point(likelihoods: list[float], answer: int, points: float) -> None:
    assert credit(likelihoods, answer) == points


def slow_nats(model: LanguageModel, text: str, others: tuple[str, ...]) -> float:
    """One text at a time, one token at a time, each after a prefix of its own."""
    ids = encode(text)
    shared = next(n for n in range(len(ids)) if any(encode(other)[n] != ids[n] for other in others))
    nats = 0.0
    for place in range(shared, len(ids)):
        after = model(torch.tensor([ids[:place]])).logits[0, -1]
        nats += math.log(float(after.double().softmax(-1)[ids[place]]))
    return nats


@pytest.mark.parametrize("name", VARIANTS)
def test_equal_to_a_slow_twin(name: str) -> None:
    model = small_model(name)
    probes = [probe_set(kind)[i] for kind in KINDS for i in (0, -1)]
    rows = [row for probe in probes for row in encode_probe(probe, encode, model.cfg.block_size)]
    with torch.no_grad():
        slow = [slow_nats(model, text, probe.texts) for probe in probes for text in probe.texts]
    for batch_size in (1, 5):
        assert log_likelihoods(lambda idx: model(idx).logits, rows, batch_size) == pytest.approx(slow, abs=1e-4)


def test_the_boundary_lies_where_the_choices_part() -> None:
    rows = encode_probe(Probe("x", "It was", (" hers.", " his.", " he."), 0, "y", 0), encode, None)
    assert [row.first for row in rows] == [6, 6, 6]  # I t _ w as _ | he r s .
    assert rows[0].ids[6:] == [CHARACTERS, ord("r"), ord("s"), ord(".")]
    joined = Probe("x", "It", (" as.", " an."), 0, "y", 0)  # " a" is one token: context and choice meet inside it
    assert encode_probe(joined, encode, None)[0].first == 3


def test_a_long_context_loses_its_beginning_and_is_counted() -> None:
    probe = probe_set("cloze")[0]
    whole, short = encode_probe(probe, encode, None), encode_probe(probe, encode, 20)
    longest = max(len(row.ids) for row in whole)
    assert [encode_probe(probe, encode, size)[0].cut for size in (longest - 1, longest - 2, 20)] == [False, True, True]
    assert max(len(row.ids) for row in short) == 21  # the last token is predicted, not read
    for long_row, short_row in zip(whole, short, strict=True):
        assert long_row.ids[long_row.first :] == short_row.ids[short_row.first :]
        assert long_row.ids[-len(short_row.ids) :] == short_row.ids
    scores = score_probes(uniform, encode, 40)
    assert scores["cloze"].cut == scores["cloze"].items
    assert 0 < scores["agreement"].cut < scores["agreement"].items
    assert f"{scores['agreement'].cut} of 240 agreement probes" in str(cut_note(scores, 40))
    assert "40 tokens" in str(cut_note(scores, 40))
    assert cut_note(score_probes(uniform, encode, None, ["agreement"]), None) is None


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: score_probes(uniform, encode, 3), "a model that sees 3 tokens is too short for the probes"),
        (lambda: encode_probe(Probe("x", "", ("a.", "b."), 0, "y", 0), encode, None), "no common beginning"),
        (lambda: score_probes(uniform, encode, None, ["pronouns"]), "did you mean 'pronoun'"),
        (lambda: score_probes(lambda idx: uniform(idx) * math.nan, encode, None, ["agreement"]), "no finite likelih"),
    ],
)
def test_refusals_of_probes(ask: Callable[[], object], message: str) -> None:
    with pytest.raises((InputError, DivergenceError), match=message):
        ask()


def test_the_standard_error_is_that_of_independent_groups() -> None:
    values, singles = [1.0, 0.0, 1.0, 1.0], [0, 1, 2, 3]
    expected = torch.tensor(values).std().item() / 2
    assert standard_error(values, singles) == pytest.approx(expected)
    assert standard_error(values * 2, singles * 2) == pytest.approx(expected)  # saying all twice proves nothing more
    assert standard_error([1.0, 0.0, 0.0, 1.0], [0, 0, 1, 1]) == 0.0
