"""What a run can go on from, and the model it has so far: safetensors and JSON, whole or not at all, no pickle.

RUN/model.safetensors               the best weights so far; step, loss and checksum stand in its header
RUN/checkpoints/step-00000100/      model.safetensors  optimizer.safetensors  state.json  manifest.json
"""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from sympformer.errors import InputError
from sympformer.files import checked, manifest, new_folder, read_json, write
from sympformer.models import LanguageModel, ModelConfig
from sympformer.models.folder import WEIGHTS, Tensors, check_fit, own_names, read_weights, saved_names

OPTIMIZER, STATE, MANIFEST = "optimizer.safetensors", "state.json", "manifest.json"
FOLDER, NAME = "checkpoints", re.compile(r"step-(\d{8,})")
Say = Callable[[str], None]


@dataclass
class Progress:
    """How far a run is: everything besides weights and optimizer that a resumed run needs."""

    step: int = 0  # steps done
    seconds: float = 0.0  # of training, pauses left out
    best_loss: float | None = None
    best_step: int | None = None
    pending: list[list[float]] = field(default_factory=list)  # loss and norms of the steps since the last log line
    scaler: dict[str, Any] = field(default_factory=dict)  # float16 only


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint folder holds, verified."""

    folder: Path
    progress: Progress
    model: Tensors
    optimizer: Tensors


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, run: Path, keep_last: int = 2) -> None:
        self.folder, self.keep_last = run / FOLDER, keep_last
        self._damaged: set[Path] = set()  # found so by `newest`: they do not count among those to keep

    def save(self, progress: Progress, model: Tensors, optimizer: Tensors) -> None:
        """Write the checkpoint of a step, then remove the oldest good ones that need not be kept."""
        folder = self.path(progress.step)
        if folder in self._damaged:  # the run was not continued from it
            shutil.rmtree(folder)
            self._damaged.discard(folder)
        if folder.exists():  # a run that is taken up after its last step
            return
        with new_folder(folder) as work:
            (work / WEIGHTS).write_bytes(save(model))
            (work / OPTIMIZER).write_bytes(save(optimizer))
            (work / STATE).write_text(json.dumps(asdict(progress), indent=1))
            files = manifest(work, (WEIGHTS, OPTIMIZER, STATE))
            (work / MANIFEST).write_text(json.dumps(files, indent=1))
        good = [path for step in self.steps() if (path := self.path(step)) not in self._damaged]
        for old in good[: -self.keep_last]:
            shutil.rmtree(old, ignore_errors=True)

    def steps(self) -> list[int]:
        """Steps with a checkpoint, oldest first, good or not."""
        found = (NAME.fullmatch(path.name) for path in self.folder.glob("step-*"))
        return sorted(int(match[1]) for match in found if match)

    def path(self, step: int) -> Path:
        """Where the checkpoint of a step is, or would be."""
        return self.folder / f"step-{step:08d}"

    def newest(self, say: Say) -> Checkpoint | None:
        """The newest good checkpoint; damaged ones are named and passed over."""
        for step in reversed(self.steps()):
            try:
                return read_checkpoint(self.path(step))
            except InputError as error:
                self._damaged.add(self.path(step))
                say(f"{error}; it is passed over")
        return None


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read and verify a checkpoint folder."""
    try:
        files = read_json(folder / MANIFEST)
        if files.keys() != {WEIGHTS, OPTIMIZER, STATE}:
            raise InputError("its manifest names other files than a checkpoint has")
        checked(folder, files)
        progress = Progress(**read_json(folder / STATE))
        return Checkpoint(folder, progress, load_file(folder / WEIGHTS), load_file(folder / OPTIMIZER))
    except (InputError, OSError, TypeError, ValueError, KeyError, SafetensorError) as error:
        raise InputError(f"checkpoint {folder} is damaged: {error}") from error


# --- the best weights


def save_best(run: Path, progress: Progress, model: Tensors) -> None:
    """Put weights in the place of the best so far."""
    about = {"format": "pt", "step": str(progress.step), "loss": str(progress.best_loss), "sha256": digest(model)}
    write(run / WEIGHTS, save(saved_names(model), about))


def read_best(run: Path, cfg: ModelConfig) -> tuple[Tensors, dict[str, str]]:
    """The weights of a folder by their own names, and what their header says: of a run its step, loss and checksum."""
    found, about = read_weights(run)
    tensors = own_names(found, cfg)
    if about.get("sha256", said := digest(tensors)) != said:
        raise InputError(f"{run / WEIGHTS} is damaged: its checksum differs")
    return tensors, about


def best_step(run: Path) -> int | None:
    """The step of the best weights, where there are some that say it."""
    try:
        with safe_open(run / WEIGHTS, "pt") as file:
            return int((file.metadata() or {})["step"])
    except (OSError, SafetensorError, KeyError, ValueError):
        return None


def digest(tensors: Mapping[str, Tensor]) -> str:
    """sha256 of names and numbers."""
    found = hashlib.sha256()
    for name in sorted(tensors):
        found.update(name.encode() + tensors[name].contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


# --- weights and optimizer state as named tensors; under FSDP2 every process must call these


def whole(tensor: Tensor) -> Tensor:
    """The whole tensor on the CPU, also where processes share it."""
    full = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full.detach().cpu().contiguous()


def like(parameter: Tensor, tensor: Tensor) -> Tensor:
    """A tensor on the device of a parameter, and split between processes as it is where they have the same shape."""
    tensor = tensor.to(parameter.device)
    if hasattr(parameter, "device_mesh") and tensor.shape == parameter.shape:
        from torch.distributed.tensor import distribute_tensor

        return distribute_tensor(tensor, parameter.device_mesh, parameter.placements)  # type: ignore[attr-defined]
    return tensor


def model_tensors(model: LanguageModel, keep: bool = True) -> Tensors:
    """The weights by name. keep: only the process that has a use for them holds them all."""
    found = ((name, whole(tensor)) for name, tensor in model.state_dict().items())
    return {name: tensor for name, tensor in found if keep}


@torch.no_grad()
def load_model_tensors(model: LanguageModel, tensors: Tensors, where: Path) -> None:
    """Copy weights into a model; every name and shape must fit."""
    own = model.state_dict()
    check_fit({name: tensor.shape for name, tensor in own.items()}, tensors, where)
    for name, tensor in own.items():
        tensor.copy_(like(tensor, tensors[name]))


def optimizer_tensors(model: LanguageModel, optimizers: Sequence[torch.optim.Optimizer], keep: bool = True) -> Tensors:
    """The optimizers' state as `parameter.key` -> tensor. Rates come from the schedule and are not state."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    states = ((names[id(p)], state) for optimizer in optimizers for p, state in optimizer.state.items())
    found = ((f"{name}.{key}", whole(value)) for name, state in states for key, value in state.items())
    return {name: tensor for name, tensor in found if keep}


def load_optimizer_tensors(model: LanguageModel, optimizers: Sequence[torch.optim.Optimizer], tensors: Tensors) -> None:
    """Put the optimizers' state back."""
    owners = {id(p): optimizer for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
    parameters = dict(model.named_parameters())
    for full_name in sorted(tensors):  # processes that share a tensor must meet over it in the same order
        name, key = full_name.rsplit(".", 1)
        parameter = parameters[name]
        owners[id(parameter)].state[parameter][key] = like(parameter, tensors[full_name])
