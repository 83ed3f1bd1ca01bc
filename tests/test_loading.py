"""Models by name: variants, runs, Hugging Face folders, factories; and a clear sentence for everything else."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sympformer.errors import InputError
from sympformer.models import VARIANTS
from sympformer.models.foreign import block_size_of, find_logits, logits_of, vocab_size_of
from sympformer.opening import open_model
from tests.audit import toys

IDX = torch.tensor([[3, 1, 2]])

GOOD = """
import torch
from helper_beside import WIDTH
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.head = torch.nn.Embedding(30, WIDTH), torch.nn.Linear(WIDTH, 30)
    def forward(self, idx):
        return self.head(self.tokens(idx))
def build(): return Model()
def other(): return Model()
def broken(): raise OSError("no weights\\nhere")
def number(): return 3
value = 4
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with factories, the current one; what they import is forgotten afterwards."""
    (tmp_path / "my_factories.py").write_text(GOOD)
    (tmp_path / "helper_beside.py").write_text("WIDTH = 4\n")
    (tmp_path / "bad_import.py").write_text("import does_not_exist_anywhere\n")
    (tmp_path / "bad_syntax.py").write_text("def build(:\n")
    monkeypatch.chdir(tmp_path)
    modules = dict(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - set(modules):
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


@pytest.mark.parametrize("name", VARIANTS)
def test_variants(name: str) -> None:
    target = open_model(name)
    assert (target.name, target.kind, target.tokenizer) == (name, "variant", None)
    assert target.block_size == 128
    assert not target.model.training
    logits = target.logits(IDX)
    assert logits.shape == (1, 3, target.vocab_size)
    assert not logits.requires_grad
    assert torch.equal(logits, open_model(name).logits(IDX))


@pytest.mark.parametrize(
    "text", ["my_factories:build", "my_factories.py:other", "my_factories.py", "./my_factories.py"]
)
def test_factories(text: str, place: Path) -> None:
    state = torch.get_rng_state()
    target = open_model(text)
    assert torch.equal(torch.get_rng_state(), state)
    assert (target.kind, target.vocab_size, target.block_size) == ("factory", 30, None)
    assert not target.model.training
    assert target.logits(IDX).shape == (1, 3, 30)
    assert torch.equal(open_model(text).logits(IDX), target.logits(IDX))  # made with one seed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("softmax-exp-eulre", "did you mean 'softmax-exp-euler'?"),
        ("zzz", "unknown model 'zzz': choose one of softmax-baseline"),
        ("runs/none", "runs/none does not exist: name a run folder"),
        ("empty", "empty holds no model: neither a run"),
        ("my_factories:bulid", "did you mean 'build'?"),
        ("my_factories:value", "unknown factory in my_factories: 'value'"),
        ("my_factories:broken", "my_factories:broken failed when called without arguments: OSError: no weights here"),
        ("my_factories:number", "must return a torch.nn.Module, it returned int"),
        ("no_such_module:build", "cannot import no_such_module: ModuleNotFoundError"),
        ("no_such_file.py:build", "no_such_file.py does not exist"),
        ("bad_import:build", "import bad_import: ModuleNotFoundError: No module named 'does_not_exist_anywhere'"),
        ("bad_syntax.py:build", "cannot import bad_syntax.py: SyntaxError"),
        (":build", "cannot import "),
        ("broken_hf", "config.json is damaged: it is not JSON"),
        ("list_hf", "config.json is damaged: it must hold named values"),
    ],
)
def test_wrong_targets_get_one_sentence(text: str, message: str, place: Path) -> None:
    for folder, content in (("empty", None), ("broken_hf", "{"), ("list_hf", "[]")):
        (place / folder).mkdir()
        if content is not None:
            (place / folder / "config.json").write_text(content)
    with pytest.raises(InputError) as caught:
        open_model(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


# --- what models return


LOGITS = torch.randn(1, 3, 7)


FORMS: list[Any] = [LOGITS, SimpleNamespace(logits=LOGITS), {"logits": LOGITS}, (LOGITS, None), (IDX, LOGITS)]
NO_FORMS: list[tuple[Any, str]] = [
    (None, "returned NoneType without logits"),
    ({"loss": LOGITS}, "returned dict without logits"),
    ((1, 2), "returned tuple without logits"),
    (SimpleNamespace(logits=None), "without logits"),
    (LOGITS[:, -1:], "shape 1 x 1 x 7 for 1 x 3 token ids"),
    (LOGITS[0], "shape 3 x 7 for 1 x 3 token ids"),
    (LOGITS.long(), "a row for every token"),
]


def test_logits_are_found() -> None:
    assert all(find_logits(output, IDX) is LOGITS for output in FORMS)
    for output, message in NO_FORMS:
        with pytest.raises(InputError, match=message):
            find_logits(output, IDX)


def test_a_model_that_raises_is_one_sentence() -> None:
    with pytest.raises(InputError, match=r"failed on 1 x 25 token ids: IndexError: index out of range"):
        logits_of(toys.Causal())(torch.zeros(1, 25, dtype=torch.long))


def test_sizes_come_from_configs_or_from_the_token_table() -> None:
    model: Any = toys.Causal()
    assert (vocab_size_of(model), block_size_of(model)) == (toys.VOCAB, None)
    with pytest.raises(InputError, match="give --vocab_size"):
        vocab_size_of(toys.OneHot())
    model.config = SimpleNamespace(vocab_size=11, n_positions=5)
    assert (vocab_size_of(model), block_size_of(model)) == (11, 5)
    model.cfg = SimpleNamespace(vocab_size=12, block_size=6)
    assert (vocab_size_of(model), block_size_of(model)) == (12, 6)


def test_more_places_than_tokens_do_not_mislead() -> None:
    class Long(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(10, 4), nn.Embedding(500, 4)

        def forward(self, idx: Tensor) -> Tensor:
            return self.tokens(idx) + self.places(torch.arange(idx.shape[1]))

    assert vocab_size_of(Long()) == 10


# --- Hugging Face folders


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny GPT-2 with a tokenizer of a few words."""
    transformers = pytest.importorskip("transformers", reason="Hugging Face folders need transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder = tmp_path_factory.mktemp("hf") / "gpt2"
    words = {word: i for i, word in enumerate(["<end>", "a", "cat", "sat", "?"])}
    inner = Tokenizer(models.WordLevel(words, unk_token="?"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>").save_pretrained(folder)
    size = {"vocab_size": 5, "n_positions": 32, "n_embd": 8, "n_layer": 1, "n_head": 2}
    config = transformers.GPT2Config(**size, bos_token_id=0, eos_token_id=0)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


def copy_of(folder: Path, to: Path, without: tuple[str, ...] = (), **config: Any) -> Path:
    """The folder again, without some files, with some fields of its config changed."""
    to.mkdir()
    for file in folder.iterdir():
        if file.name not in without:
            (to / file.name).write_bytes(file.read_bytes())
    fields = json.loads((to / "config.json").read_text())
    (to / "config.json").write_text(json.dumps(fields | config))
    return to


def test_a_hugging_face_folder(gpt2: Path, tmp_path: Path) -> None:
    target = open_model(str(gpt2))
    assert (target.kind, target.vocab_size, target.block_size) == ("hf", 5, 32)
    assert not target.model.training
    assert target.logits(IDX).shape == (1, 3, 5)
    assert target.tokenizer is not None
    assert target.tokenizer.encode("a cat sat") == [1, 2, 3]
    assert target.tokenizer.decode([2, 3]) == "cat sat"
    assert target.tokenizer.end_of_text == 0
    bare = copy_of(gpt2, tmp_path / "bare", without=("tokenizer.json", "tokenizer_config.json"))
    assert open_model(str(bare)).tokenizer is None


def test_our_own_classes_are_known(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="Hugging Face folders need transformers")
    from sympformer import variant
    from sympformer.hf import SympFormerConfig, SympFormerForCausalLM

    cfg = variant("linear-etd-ab2", n_layer=1, n_head=2, d_model=8, block_size=16, vocab_size=20)
    SympFormerForCausalLM(SympFormerConfig.from_model_config(cfg)).save_pretrained(tmp_path)
    target = open_model(str(tmp_path))
    assert (target.kind, target.vocab_size, target.block_size) == ("hf", 20, 16)


OWN_CODE = """
from pathlib import Path
from transformers import GPT2Config, GPT2LMHeadModel
class Config(GPT2Config):
    model_type = "never_seen"
class Model(GPT2LMHeadModel):
    config_class = Config
Path(RAN).write_text("")
"""


def test_foreign_code_is_run_only_if_trusted(gpt2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", list(sys.path))  # transformers adds the modules' folder
    auto_map = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}
    folder = copy_of(gpt2, tmp_path / "foreign", model_type="never_seen", auto_map=auto_map)
    (folder / "own.py").write_text(OWN_CODE.replace("RAN", repr(str(tmp_path / "ran"))))
    with pytest.raises(InputError, match="comes with code of its own: read it, then give --trust_remote_code"):
        open_model(str(folder))
    assert not (tmp_path / "ran").exists()
    target = open_model(str(folder), trust_remote_code=True)
    assert (type(target.model).__name__, (tmp_path / "ran").exists()) == ("Model", True)
    assert torch.equal(target.logits(IDX), open_model(str(gpt2)).logits(IDX))


def test_folders_that_do_not_load(gpt2: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    pickled = copy_of(gpt2, tmp_path / "pickled", without=("model.safetensors",))
    (pickled / "pytorch_model.bin").write_bytes(b"anything")
    cut = copy_of(gpt2, tmp_path / "cut")
    (cut / "model.safetensors").write_bytes((gpt2 / "model.safetensors").read_bytes()[:100])
    holes = copy_of(gpt2, tmp_path / "holes")  # missing weights are not made up
    kept = {name: value for name, value in load_file(holes / "model.safetensors").items() if "c_attn.w" not in name}
    save_file(kept, holes / "model.safetensors", {"format": "pt"})
    for folder, message in (
        (pickled, "pickled weights are not read"),
        (cut, "does not load as a Hugging Face language model"),
        (holes, r"lack transformer\.h\.0\.attn\.c_attn\.weight"),
    ):
        with pytest.raises(InputError, match=message) as caught:
            open_model(str(folder))
        assert "\n" not in str(caught.value)


def test_transformers_missing_is_said(gpt2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sympformer.opening.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install '.\[hf\]'"):
        open_model(str(gpt2))
