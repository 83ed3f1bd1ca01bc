"""Checkpoints: safetensors and JSON, written atomically, every file with its checksum. No pickle.

    checkpoints/step-00000100/   model.safetensors  optimizer.safetensors  state.json  manifest.json
    checkpoints/best-00000060/   model.safetensors  state.json  manifest.json          (weights only)

The manifest, written last, holds the sha256 of every other file. A checkpoint whose manifest does not fit is not used.
"""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from sympformer.atomic import remove_leftovers, staged_folder, write_synced
from sympformer.errors import InputError
from sympformer.models import LanguageModel
from sympformer.safe_files import read_bytes, read_json, sha256

MODEL, OPTIMIZER, STATE, MANIFEST = "model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"
NAME = re.compile(r"(step|best)-(\d{8,})")
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
    metrics: str | None = None  # sha256 of the metrics up to this step


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint folder holds, verified."""

    folder: Path
    progress: Progress
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]


class CheckpointFolder:
    """The checkpoints of one run."""

    def __init__(self, folder: Path, keep_last: int = 2) -> None:
        self.folder, self.keep_last = folder, keep_last
        self._damaged: set[Path] = set()  # found so by `newest`: they do not count among those to keep

    def save(self, progress: Progress, model: dict[str, Tensor], optimizer: dict[str, Tensor]) -> Path:
        """Write the checkpoint of a step, then remove the oldest ones that need not be kept."""
        files = {MODEL: save_tensors(model), OPTIMIZER: save_tensors(optimizer), STATE: _json(vars(progress))}
        folder = self._write("step", progress.step, files)
        self._damaged.discard(folder)
        good = [path for step in self.steps("step") if (path := self._path("step", step)) not in self._damaged]
        for old in good[: -self.keep_last]:
            shutil.rmtree(old, ignore_errors=True)
        return folder

    def save_best(self, progress: Progress, model: dict[str, Tensor]) -> Path:
        """Write the weights of the best evaluation so far, then remove the ones before."""
        folder = self._write("best", progress.step, {MODEL: save_tensors(model), STATE: _json(vars(progress))})
        for old in self.steps("best"):
            if old != progress.step:
                shutil.rmtree(self._path("best", old), ignore_errors=True)
        return folder

    def steps(self, kind: str) -> list[int]:
        """Steps with a checkpoint of a kind ("step" or "best"), oldest first, valid or not."""
        found = [NAME.fullmatch(path.name) for path in self.folder.iterdir()] if self.folder.is_dir() else []
        return sorted(int(match[2]) for match in found if match and match[1] == kind)

    def newest(self, say: Say, kinds: Sequence[str] = ("step",)) -> Checkpoint | None:
        """The newest valid checkpoint, the kinds in order of preference; damaged ones are named and passed over."""
        for kind in kinds:
            for step in reversed(self.steps(kind)):
                folder = self._path(kind, step)
                try:
                    return read_checkpoint(folder)
                except InputError as error:
                    self._damaged.add(folder)
                    say(f"{error}; it is passed over")
        return None

    def clean(self) -> None:
        """Remove what a killed process left half-written."""
        for place in (self.folder.parent, self.folder):
            remove_leftovers(place)

    def _write(self, kind: str, step: int, files: dict[str, bytes]) -> Path:
        manifest = {name: {"bytes": len(content), "sha256": sha256(content)} for name, content in files.items()}
        folder = self._path(kind, step)
        with staged_folder(folder, replace=True) as work:
            for name, content in (files | {MANIFEST: _json(manifest)}).items():
                write_synced(work / name, content)
        return folder

    def _path(self, kind: str, step: int) -> Path:
        return checkpoint_path(self.folder, kind, step)


def checkpoint_path(folder: Path, kind: str, step: int) -> Path:
    """Where the checkpoint of a step is, or would be."""
    return folder / f"{kind}-{step:08d}"


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read and verify a checkpoint folder."""
    try:
        manifest = read_json(folder / MANIFEST, largest=1 << 16)
        if not {MODEL, STATE} <= manifest.keys() <= {MODEL, STATE, OPTIMIZER}:
            raise InputError("its manifest names other files than a checkpoint has")
        files = {name: _verified(folder / name, manifest[name]) for name in manifest}
        progress = Progress(**json.loads(files[STATE]))
        optimizer = load_tensors(files[OPTIMIZER]) if OPTIMIZER in files else {}
        return Checkpoint(folder, progress, load_tensors(files[MODEL]), optimizer)
    except InputError as error:
        raise InputError(f"checkpoint {folder} is damaged: {error}") from error
    except OSError as error:
        raise InputError(f"checkpoint {folder} is damaged: {error.strerror} ({error.filename})") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
        raise InputError(f"checkpoint {folder} is damaged: its manifest does not read") from error


def _verified(file: Path, described: dict[str, Any]) -> bytes:
    """The content of a file that is as large and has the checksum as its manifest says."""
    content = read_bytes(file, largest=int(described["bytes"]))  # what a manifest says is not allocated, only compared
    if len(content) != described["bytes"] or sha256(content) != described["sha256"]:
        raise InputError(f"the checksum of {file.name} differs")
    return content


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=2) + "\n").encode()


# --- weights and optimizer state as named tensors


def whole(tensor: Tensor) -> Tensor:
    """The whole tensor on the CPU, also where processes share it."""
    full = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full.detach().cpu().contiguous()


def like(parameter: Tensor, tensor: Tensor) -> Tensor:
    """A tensor placed like a parameter: its device, and its split between processes where it has the same shape."""
    tensor = tensor.to(parameter.device)
    if hasattr(parameter, "device_mesh") and tensor.shape == parameter.shape:
        from torch.distributed.tensor import distribute_tensor

        return distribute_tensor(tensor, parameter.device_mesh, parameter.placements)  # type: ignore[attr-defined]
    return tensor


def model_tensors(model: LanguageModel) -> dict[str, Tensor]:
    """The weights by name."""
    return {name: whole(tensor) for name, tensor in model.state_dict().items()}


@torch.no_grad()
def load_model_tensors(model: LanguageModel, tensors: dict[str, Tensor], where: Path) -> None:
    """Copy weights into a model; every name and shape must fit."""
    own = model.state_dict()
    if own.keys() != tensors.keys() or any(own[name].shape != tensors[name].shape for name in own):
        raise InputError(f"the weights in {where} belong to another model than the config beside them")
    for name, tensor in own.items():
        tensor.copy_(like(tensor, tensors[name]))


def optimizer_tensors(model: LanguageModel, optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """The optimizers' state as `parameter.key` -> tensor. Rates come from the schedule and are not state."""
    tensors = {}
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for optimizer in optimizers:
        for parameter, state in optimizer.state.items():
            for key, value in state.items():
                tensors[f"{names[id(parameter)]}.{key}"] = whole(value)
    return tensors


def load_optimizer_tensors(
    model: LanguageModel, optimizers: Sequence[torch.optim.Optimizer], tensors: dict[str, Tensor]
) -> None:
    """Put the optimizers' state back."""
    owners = {id(p): optimizer for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
    parameters = dict(model.named_parameters())
    for full_name in sorted(tensors):  # processes that share a tensor must meet over it in the same order
        name, key = full_name.rsplit(".", 1)
        parameter = parameters[name]
        owners[id(parameter)].state[parameter][key] = like(parameter, tensors[full_name])
