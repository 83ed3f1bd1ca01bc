"""The one description of a training run: frozen, validated, one YAML file per named run.

Every option that changes the result is here, so that the resolved config in a run folder is the recipe of its model.
"""

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sympformer.config_checks import check_names, check_types
from sympformer.data.config import DataConfig as DataConfig
from sympformer.errors import InputError
from sympformer.files import read_yaml
from sympformer.options import build, options_of, read

Precision = Literal["float32", "bfloat16", "float16"]
OptimizerName = Literal["adamw", "muon"]
Device = Literal["auto", "cpu", "cuda", "mps"]
Strategy = Literal["auto", "ddp", "fsdp2"]

DEFAULT_VARIANT, DEFAULT_TOKENS = "softmax-exp-euler", 800_000
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
        self._check_counts()
        self._check_rates()
        if "\0" in f"{self.out}{self.init_from}{self.data.folder}{self.data.corpus}{self.data.tokenizer}":
            raise InputError(
                "out, init_from, data.folder, data.corpus and data.tokenizer must not hold the character U+0000"
            )
        if self.steps is not None and self.tokens is not None:
            raise InputError(f"steps = {self.steps} and tokens = {self.tokens} are two budgets: give one of them")
        if self.optimizer == "muon" and self.precision == "float16":
            raise InputError("optimizer = 'muon' does not go with precision = 'float16'; choose bfloat16 or float32")
        if self.strategy == "fsdp2" and self.precision == "float16":
            # one process may find an overflow in its part of a gradient and skip a step that the others take
            raise InputError("strategy = 'fsdp2' does not go with precision = 'float16'; choose bfloat16 or float32")

    def _check_counts(self) -> None:
        least_one = ("batch_size", "accumulate", "log_every", "eval_every", "checkpoint_every", "keep_last")
        for name in (*least_one, "steps", "tokens", "eval_tokens", "sample_every", "sample_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1, got {value}")
        if self.warm_up < 0:
            raise InputError(f"warm_up must not be negative, got {self.warm_up}")
        if not 0 <= self.seed < 2**63:
            raise InputError(f"seed must lie between 0 and 2^63 - 1, got {self.seed}")

    def _check_rates(self) -> None:
        for name in ("lr", "scalar_lr_factor", "clip"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise InputError(f"{name} must be positive and finite, got {value}")
        if not 0 <= self.weight_decay < math.inf:
            raise InputError(f"weight_decay must be finite and not negative, got {self.weight_decay}")
        if not 0 <= self.min_lr_ratio <= 1:
            raise InputError(f"min_lr_ratio must lie between 0 and 1, got {self.min_lr_ratio}")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise InputError(f"betas must lie in [0, 1), got {list(self.betas)}")

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
        parts = {name: value for name, value in self.to_dict().items() if isinstance(value, dict)}
        below = {f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()}
        return {name: getattr(self, name) for name in self.to_dict().keys() - parts.keys()} | below

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
