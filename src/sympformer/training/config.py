"""The one description of a training run: frozen, validated, one YAML file per named run.

Every option that changes the result is here, so that the resolved config in a run folder is the recipe of its model.
"""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sympformer.config_checks import check_names, check_types
from sympformer.data.config import DataConfig as DataConfig
from sympformer.errors import InputError
from sympformer.files import read_yaml
from sympformer.options import build, options_of, read

if TYPE_CHECKING:
    from sympformer.data import Tokenizer
    from sympformer.models import ModelConfig

Precision = Literal["float32", "bfloat16", "float16"]
OptimizerName = Literal["adamw", "muon"]
Device = Literal["auto", "cpu", "cuda", "mps"]
Strategy = Literal["auto", "ddp", "fsdp2"]

DEFAULT_VARIANT, DEFAULT_TOKENS = "softmax-exp-euler", 800_000
OVERHEAD = 30_000  # bytes of a layer besides its weights
# names of options, what a value must do, whether it does; None is always fine
RANGES: tuple[tuple[str, str, Callable[[Any], bool]], ...] = (
    ("batch_size accumulate steps tokens keep_last eval_tokens sample_tokens", "be at least 1", lambda n: n >= 1),
    ("log_every eval_every sample_every checkpoint_every", "be at least 1", lambda n: n >= 1),
    ("warm_up", "not be negative", lambda n: n >= 0),
    ("seed", "lie between 0 and 2^63 - 1", lambda n: 0 <= n < 2**63),
    ("lr scalar_lr_factor clip", "be positive and finite", lambda x: 0 < x < math.inf),
    ("weight_decay", "be finite and not negative", lambda x: 0 <= x < math.inf),
    ("min_lr_ratio", "lie between 0 and 1", lambda x: 0 <= x <= 1),
    ("betas", "lie in [0, 1)", lambda pair: all(0 <= beta < 1 for beta in pair)),
)
# Options that do not change the result: a resumed run may have others than the run it continues.
FREE_TO_CHANGE = (
    "out", "keep_last", "checkpoint_every", "tensorboard", "device", "compile", "strategy", "sample_prompt",
)  # fmt: skip


@dataclass(frozen=True)
class TrainConfig:
    """Everything that defines a training run."""

    model: dict[str, Any] = field(
        default_factory=lambda: {"variant": DEFAULT_VARIANT, "preset": "tuned"},
        metadata={"options": "sympformer.models.config:named_options"},
    )
    """The model: 'variant' and 'preset' (tuned, full, paper, paper-spd or modern), and any option of ModelConfig, such
    as n_layer, n_head, d_model, block_size. With 'stepper' instead of 'variant', a full ModelConfig."""
    data: DataConfig = field(default_factory=DataConfig)
    """The text."""
    steps: int | None = None
    """Optimizer steps; by default as many as `tokens` needs."""
    tokens: int | None = None
    """Training tokens in place of `steps`, rounded up to whole ones. By default 800,000. A run that
    is resumed with more goes on; see docs/training.md for its learning rate."""
    batch_size: int = 16
    """Texts in one forward pass."""
    accumulate: int = 1
    """Forward passes in one optimizer step. Processes share batch_size x accumulate texts between them."""

    lr: float = 16e-3
    """Peak learning rate. The default suits the default model; a wider one wants less."""
    min_lr_ratio: float = 0.1
    """The cosine ends at this share of the peak."""
    warm_up: int = 50
    """Steps of linear warm-up."""
    optimizer: OptimizerName = "adamw"
    """adamw, or muon for the matrices and adamw for the rest."""
    weight_decay: float = 0.1
    """Decay of matrices and embeddings; gains and learned scalars have none."""
    betas: tuple[float, float] = (0.9, 0.95)
    """AdamW's averaging factors."""
    clip: float | None = 1.0
    """Largest norm of the gradient without the learned scalars, which are never clipped; null clips nothing."""
    scalar_lr_factor: float = 5.0
    """Learning rate of step sizes, damping and momentum factors, as a multiple."""
    precision: Precision = "float32"
    """float32, or mixed precision with bfloat16 or (on CUDA) float16."""

    log_every: int = 10
    """Steps between lines of metrics; a line holds the mean loss since the last."""
    eval_every: int = 100
    """Steps between evaluations; there is always one at the end."""
    eval_tokens: int | None = 100_000
    """Size of the fixed validation set, spread over the validation text; null takes all of it."""
    sample_every: int | None = None
    """Steps between text samples; by default one at the end."""
    sample_tokens: int = 80
    """Length of a text sample."""
    sample_prompt: str = "One day"
    """How a text sample begins."""
    checkpoint_every: int = 100
    """Steps between checkpoints; there is always one at the end."""
    keep_last: int = 2
    """How many of the newest checkpoints stay; the best one (weights only) always does."""

    init_from: str | None = None
    """Run folder, or folder that 'sympformer export' wrote, whose weights to begin with: its model and tokenizer are
    taken over, the optimizer starts anew."""
    seed: int = 0
    """Draws the starting weights, the order of the texts and dropout."""
    device: Device = "auto"
    """cpu, cuda, mps (Apple's GPUs; not tried by us), or auto: cuda where there is one, else the cpu."""
    compile: bool = False
    """Compile the model with torch.compile: meant for a GPU and long runs. On the CPU it hardly pays, as the steps are
    fused already: minutes of compiling for a tenth of a step or so (docs/training.md)."""
    strategy: Strategy = "auto"
    """Under torchrun: ddp (every process holds the model) or fsdp2 (the model is split between them)."""
    out: str | None = None
    """Run folder; by default a new one under runs/."""
    tensorboard: bool = False
    """Write TensorBoard files too."""

    def __post_init__(self) -> None:
        check_types(self)
        for names, wanted, fits in RANGES:
            for name in names.split():
                if (value := getattr(self, name)) is not None and not fits(value):
                    raise InputError(f"{name} must {wanted}, got {value}")
        if self.steps is not None and self.tokens is not None:
            raise InputError(f"steps = {self.steps} and tokens = {self.tokens} are two budgets: give one of them")
        for name, value in (("optimizer", "muon"), ("strategy", "fsdp2")):
            # of fsdp2's processes one may find an overflow in its part of a gradient and skip what the others take
            if getattr(self, name) == value and self.precision == "float16":
                raise InputError(
                    f"{name} = '{value}' does not go with precision = 'float16'; choose bfloat16 or float32"
                )

    def replace(self, **changes: Any) -> "TrainConfig":
        """A copy with some fields changed."""
        check_names(TrainConfig, changes, "train")
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        return dataclasses.asdict(self) | {"betas": list(self.betas)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "TrainConfig":
        """The config of these fields; missing ones take their defaults, unknown ones are errors."""
        check_names(cls, values, "train")
        values = dict(values)
        if "data" in values:
            check_names(DataConfig, values["data"], "data")
            values["data"] = DataConfig(**values["data"])
        if isinstance(values.get("betas"), list):
            values["betas"] = tuple(values["betas"])
        return cls(**values)

    def to_yaml(self) -> str:
        """YAML text that `load_config` and `sympformer train` read."""
        import yaml

        return yaml.safe_dump(self.to_dict(), sort_keys=False)

    def global_batch(self) -> int:
        """Texts in one optimizer step, over all processes."""
        return self.batch_size * self.accumulate

    def total_steps(self, block_size: int) -> int:
        """Optimizer steps of the whole run."""
        if self.steps is not None:
            return self.steps
        tokens = DEFAULT_TOKENS if self.tokens is None else self.tokens
        return -(-tokens // (self.global_batch() * block_size))

    def flat(self) -> dict[str, Any]:
        """Every option by its dotted name, as the command line has it."""
        found: dict[str, Any] = {}
        for name, value in dataclasses.asdict(self).items():
            found |= {f"{name}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {name: value}
        return found

    def named(self) -> dict[str, Any]:
        """The options that are not as by default."""
        default = TrainConfig().flat()
        return {name: value for name, value in self.flat().items() if name not in default or default[name] != value}

    def differences(self, other: "TrainConfig") -> list[str]:
        """Names of the options that change the result and are not the same."""
        mine, theirs = self.to_dict(), other.to_dict()
        return [name for name in mine if name not in FREE_TO_CHANGE and mine[name] != theirs[name]]


def load_config(path: str | Path) -> TrainConfig:
    """Read a YAML config file."""
    config: TrainConfig = build(TrainConfig, read(options_of(TrainConfig), [], read_yaml(Path(path))))
    return config


# --- the model that a config asks for


def choose_model(options: dict[str, Any], tokenizer: "Tokenizer | None" = None) -> "ModelConfig":
    """The ModelConfig that options name: variant, preset and overrides, or without these `stepper` and plain fields.

    With a tokenizer the vocabulary is its own, padded, unless the options give a larger one.
    """
    from sympformer.models import ModelConfig, variant

    options = dict(options)
    for name in ("variant", "preset"):
        if name in options and not isinstance(options[name], str):
            raise InputError(f"model.{name} must be a name, got {options[name]!r}")
    if tokenizer is not None:
        if options.get("vocab_size") is None:
            options["vocab_size"] = tokenizer.padded_vocab_size
        if isinstance(size := options["vocab_size"], int) and size < tokenizer.vocab_size:
            known = f"the tokenizer {tokenizer.name} has {tokenizer.vocab_size} ids"
            raise InputError(f"model.vocab_size is {size}, but {known}")
    if is_plain(options):
        cfg = ModelConfig.from_dict(options)
    else:
        name, preset = options.pop("variant", DEFAULT_VARIANT), options.pop("preset", "tuned")
        cfg = variant(name, preset, **options)
    if not cfg.causal:
        raise InputError("model.causal = False sees the next token it should predict; train with causal = True")
    _check_memory(cfg)
    return cfg


def is_plain(options: Mapping[str, Any]) -> bool:
    """Whether options are the fields of a ModelConfig, and not a variant's with some changed."""
    return "stepper" in options and "variant" not in options and "preset" not in options


def model_options(shared: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """The options of one model among several: its own over those that all share; a learning rate is none of them."""
    left_out = {"lr", "variant", "preset"} if is_plain(own) else {"lr"}
    return {name: value for name, value in (shared | own).items() if name not in left_out}


def _check_memory(cfg: "ModelConfig") -> None:
    """Refuse a model whose weights alone would fill the machine, before it is built."""
    layers, mlp = 1 if cfg.share_layers else cfg.n_layer, 2 * (cfg.mlp_ratio or 0)
    numbers = cfg.d_model * (cfg.vocab_size + cfg.block_size + (2 + mlp) * cfg.d_model * layers)
    needed, there = 4 * numbers + OVERHEAD * cfg.n_layer, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise InputError(
            f"the model would need at least {needed / 1e9:,.0f} GB of memory, and this machine has {there / 1e9:,.0f}: "
            "choose a smaller n_layer, d_model, mlp_ratio, vocab_size or block_size"
        )
