"""What `import` refuses, each in one sentence, and folders that another tool wrote."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from sympformer import cli
from sympformer.errors import InputError
from sympformer.exchange import import_run
from sympformer.exchange.record import RECORD
from sympformer.training import load_run
from tests.exchange.conftest import load

WEIGHTS, CONFIG = "model.safetensors", "config.json"
Damage = Callable[[Path], object]


def changed(file: str, **values: object) -> Damage:
    def change(folder: Path) -> None:
        content = json.loads((folder / file).read_text())
        content.pop("seal", None)  # somebody meant it
        (folder / file).write_text(json.dumps(content | values))

    return change


def without_record(damage: Damage) -> Damage:
    """The same damage where no checksum could show it."""

    def change(folder: Path) -> None:
        (folder / RECORD).unlink()
        damage(folder)

    return change


def truncate(file: str) -> Damage:
    return lambda folder: (folder / file).write_bytes((folder / file).read_bytes()[:-100])


def flip_a_bit(folder: Path) -> None:
    content = bytearray((folder / WEIGHTS).read_bytes())
    content[-1] ^= 1
    (folder / WEIGHTS).write_bytes(content)


def drop_a_weight(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    tensors.pop("model.body.norm.weight")
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})


def add_a_weight(folder: Path) -> None:
    save_file({**load_file(folder / WEIGHTS), "stranger": torch.zeros(2)}, folder / WEIGHTS, {"format": "pt"})


def only_pickles(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")


CASES: dict[str, tuple[Damage, str]] = {
    "weights-truncated": (truncate(WEIGHTS), r"model\.safetensors has changed since the export"),
    "weights-bit": (flip_a_bit, r"model\.safetensors has changed since the export"),
    "weights-truncated-alone": (without_record(truncate(WEIGHTS)), r"the model in .* cannot be read \("),
    "weight-missing": (
        without_record(drop_a_weight),
        r"do not fit its config\.json: missing model\.body\.norm\.weight",
    ),
    "weight-too-many": (without_record(add_a_weight), r"do not fit its config\.json: unexpected stranger"),
    "weights-other-shape": (without_record(changed(CONFIG, hidden_size=8)), r"the model in .* cannot be read \("),
    "weights-gone": (lambda f: (f / WEIGHTS).unlink(), r"has no model\.safetensors: it is not whole$"),
    "weights-pickled": (only_pickles, r"pytorch_model\.bin is pickled, which can run any program, and is not read"),
    "config-gone": (lambda f: (f / CONFIG).unlink(), r"holds no exported model \(no config\.json\)"),
    "config-cut": (truncate(CONFIG), r"config\.json is damaged: it is not JSON"),
    "config-list": (lambda f: (f / CONFIG).write_text("[]"), "must hold named values, got list"),
    "config-foreign": (changed(CONFIG, model_type="gpt2"), "holds a model of type 'gpt2': import takes what"),
    "config-newer": (without_record(changed(CONFIG, format_version=99)), "format 99 and this sympformer reads up to 2"),
    "config-unknown": (without_record(changed(CONFIG, hidden_sise=4)), "unknown config field 'hidden_sise'"),
    "config-type": (without_record(changed(CONFIG, hidden_size="x")), r"the model in .* cannot be read \(|hidden_size"),
    "record-newer": (changed(RECORD, format=99), r"sympformer_run\.json is of format 99.* install a newer sympformer"),
    "record-cut": (truncate(RECORD), r"sympformer_run\.json is damaged"),
    "record-list": (lambda f: (f / RECORD).write_text("[]"), r"sympformer_run\.json is damaged"),
    "record-unknown": (changed(RECORD, stranger=1), r"sympformer_run\.json is damaged"),
    "record-outside": (changed(RECORD, files={"../x": "0"}), "names a file outside its folder, '../x'"),
    "tokenizer-gone": (lambda f: (f / "tokenizer.json").unlink(), r"is not whole: cannot read .*tokenizer\.json"),
    "tokenizer-cut": (without_record(truncate("tokenizer.json")), r"tokenizer\.json is damaged: it is not JSON"),
}


@pytest.mark.parametrize("case", CASES)
def test_damaged_foreign_and_newer_folders(
    case: str, copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage, message = CASES[case]
    damage(copied)
    with pytest.raises(InputError, match=message) as caught:
        import_run(copied, tmp_path / "out")
    assert "\n" not in str(caught.value)
    capsys.readouterr()
    assert cli.main(["import", str(copied), str(tmp_path / "out")]) == 2
    err = capsys.readouterr().err
    assert err == f"sympformer: error: {caught.value}\n"
    assert {path.name for path in tmp_path.iterdir()} == {"copied"}


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a folder: download a model of the hub first"):
        import_run("owner/name", tmp_path / "out")


class Bomb:
    """Unpickling it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("keep_weights", [True, False])
def test_nothing_is_unpickled(keep_weights: bool, copied: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    (copied / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(mark)))
    if keep_weights:
        import_run(copied, tmp_path / "out")
        load(copied)
    else:
        (copied / WEIGHTS).unlink()
        with pytest.raises(InputError, match="is pickled"):
            import_run(copied, tmp_path / "out")
        with pytest.raises(OSError, match="safetensors"):
            load(copied)
    assert not mark.exists()
    pickle.loads((copied / "pytorch_model.bin").read_bytes())
    assert mark.exists()  # so the check could have failed


def test_no_code_of_the_folder_runs(copied: Path, tmp_path: Path) -> None:
    for file in copied.glob("*.py"):
        file.write_text("raise SystemExit('code of the folder ran')")
    import_run(copied, tmp_path / "out")
    assert load_run(tmp_path / "out").sample("One", 3)


def test_a_folder_of_save_pretrained(exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, saved, out = load(exported), tmp_path / "saved", tmp_path / "out"
    with torch.no_grad():
        model.lm_head.weight.add_(1)  # as if trained further
    model.save_pretrained(saved)
    AutoTokenizer.from_pretrained(exported).save_pretrained(saved)
    said: list[str] = []
    import_run(saved, out, said.append)
    assert "how the model was trained" in said[0]
    run = load_run(out)
    assert torch.equal(run.model.head_weight, model.lm_head.weight)
    assert run.tokenizer.name == "bpe:300"
    capsys.readouterr()
    assert cli.main(["eval", str(out)]) == 2
    assert "its config names the text 'unknown'" in capsys.readouterr().err


def test_a_bfloat16_folder_becomes_float32(exported: Path, tmp_path: Path) -> None:
    model = load(exported).to(torch.bfloat16)
    model.save_pretrained(tmp_path / "saved")
    AutoTokenizer.from_pretrained(exported).save_pretrained(tmp_path / "saved")
    import_run(tmp_path / "saved", tmp_path / "out")
    weights = load_run(tmp_path / "out").model.tokens.weight
    assert weights.dtype == torch.float32
    assert torch.equal(weights.bfloat16(), model.get_input_embeddings().weight)


def test_an_imported_run_cannot_be_continued(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has no optimizer state; starting again at step 0 would overwrite it without a word."""
    import_run(exported, tmp_path / "out")
    before = load_run(tmp_path / "out").model.state_dict()
    assert cli.main(["train", "--resume", "--out", str(tmp_path / "out")]) == 2
    assert "cannot be continued" in capsys.readouterr().err
    after = load_run(tmp_path / "out").model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
