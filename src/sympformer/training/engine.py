"""Device, precision and processes on plain torch: one process, or those that torchrun started (DDP or FSDP2)."""

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from sympformer import machine
from sympformer.errors import InputError
from sympformer.models import LanguageModel
from sympformer.training.config import TrainConfig

HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}
T = TypeVar("T")


class LossOf(nn.Module):
    """The model as processes share it: tokens in, loss out."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        loss = self.model(inputs, targets=targets).loss
        assert loss is not None  # there are targets
        return loss


class Engine:
    """Where a run computes. `rank` of `world` processes; the first one speaks, writes and decides for all."""

    def __init__(self, config: TrainConfig) -> None:
        device, local = pick_device(config), int(os.environ.get("LOCAL_RANK", "0"))
        self.rank, self.world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        self.device = torch.device(device, local) if device == "cuda" else torch.device(device)
        self.half, self.split = HALF.get(config.precision), config.strategy == "fsdp2"
        self.scaler = torch.amp.GradScaler(device, enabled=config.precision == "float16")
        self.loss_of: Any = None
        self._mesh: Any = None
        if self.split and self.world == 1:
            raise InputError("strategy = 'fsdp2' splits a model between processes; start them with torchrun")
        if device == "cuda":
            torch.cuda.set_device(self.device)
        if self.world > 1 and not dist.is_initialized():
            import_module("torch._dynamo")  # DDP would import it later, and then it keeps the group and its threads
            nccl: dict[str, Any] = {"backend": "nccl", "device_id": self.device}
            dist.init_process_group(**(nccl if device == "cuda" else {"backend": "gloo"}))

    @property
    def first(self) -> bool:
        """Whether this is the process that speaks for all."""
        return self.rank == 0

    def set_up(self, model: LanguageModel, compiled: bool) -> None:
        """Put the model on its device, shared or split between the processes; from now on `loss` is its loss."""
        loss_of: Any = LossOf(model.to(self.device))
        if self.split:
            self._split((*model.blocks, loss_of))
        elif self.world > 1:
            unused = leaves_unused(model)
            loss_of = nn.parallel.DistributedDataParallel(loss_of, find_unused_parameters=unused)
        self._shared, self.loss_of = loss_of, torch.compile(loss_of) if compiled else loss_of

    def _split(self, parts: Sequence[nn.Module]) -> None:
        """FSDP2: every block on its own, then the rest."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        self._mesh = init_device_mesh(self.device.type, (self.world,))
        for part in parts:
            fully_shard(part, mesh=self._mesh)

    def autocast(self) -> AbstractContextManager[Any]:
        """The precision of forward passes."""
        return nullcontext() if self.half is None else torch.autocast(self.device.type, self.half)

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of a batch."""
        with self.autocast():
            loss: Tensor = self.loss_of(inputs, targets)
        return loss

    def backward(self, loss: Tensor, last: bool = True) -> None:
        """Gradients of a loss; processes exchange them with the last of a step's passes."""
        if self.world > 1 and self.split:
            self._shared.set_requires_gradient_sync(last)
        self.scaler.scale(loss).backward()

    def alone(self, last: bool) -> AbstractContextManager[Any]:
        """Around a pass, forward and backward: DDP sums the gradients over the processes in the last one only."""
        ddp = self.world > 1 and not self.split
        return self._shared.no_sync() if ddp and not last else nullcontext()

    def update(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """One step of the optimizers with gradients that have been unscaled and clipped."""
        for optimizer in optimizers:
            self.scaler.step(optimizer)
            optimizer.zero_grad(set_to_none=True)
        self.scaler.update()

    # --- between processes

    def mean(self, figures: Tensor) -> Tensor:
        """The mean of a tensor over the processes."""
        if self.world > 1:
            dist.all_reduce(figures)
            figures /= self.world
        return figures

    def sums(self, *values: float) -> list[float]:
        """Numbers summed over all processes."""
        return self._reduced(dist.ReduceOp.SUM, *values)

    def greatest(self, *values: float) -> list[float]:
        """The greatest of every number over all processes."""
        return self._reduced(dist.ReduceOp.MAX, *values)

    def _reduced(self, how: Any, *values: float) -> list[float]:
        if self.world == 1:
            return list(values)
        found = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(found, how)
        return [float(value) for value in found]

    def told(self, what: T) -> T:
        """What the first process says, in all of them."""
        box = [what]
        if self.world > 1:
            dist.broadcast_object_list(box)
        return box[0]

    def wait(self) -> None:
        """Until all processes have come here."""
        if self.world > 1:
            dist.barrier()

    @contextmanager
    def first_ahead(self) -> Iterator[None]:
        """The first process goes through the block, then the others."""
        if not self.first:
            self.wait()
        yield
        if self.first:
            self.wait()

    def leave(self) -> None:
        """All processes end together: one that leaves early would abort the others. So do the group's threads, of which
        one that outlives the interpreter can abort its process: torch's caches keep a mesh, which must let go of them.
        """
        self.loss_of = self._shared = None
        if self.world > 1:
            dist.barrier()
            dist.destroy_process_group()
            if self._mesh is not None:
                self._mesh._pg_registry.clear()
            gc.collect()


def leaves_unused(model: LanguageModel) -> bool:
    """Whether a parameter never gets a gradient, such as the last layer's momentum gain where no MLP reads it."""
    ids = torch.zeros(1, 2, dtype=torch.long, device=model.tokens.weight.device)
    LossOf(model)(ids, ids).backward()
    found = any(parameter.grad is None for parameter in model.parameters())
    model.zero_grad(set_to_none=True)
    return found


def pick_device(config: TrainConfig) -> str:
    """cpu, cuda or mps; raises where the config asks for what is not there, and makes bfloat16 ready on a CPU."""
    there: dict[str, Callable[[], bool]] = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}
    if config.device in there and not there[config.device]():
        raise InputError(
            f"device = '{config.device}' asks for a GPU and there is none; choose device = 'cpu' or 'auto'"
        )
    device = "cuda" if config.device == "auto" and torch.cuda.is_available() else config.device.replace("auto", "cpu")
    if config.precision == "float16" and device != "cuda":
        raise InputError("precision = 'float16' needs a CUDA device; elsewhere choose bfloat16 or float32")
    if device == "cpu":
        machine.calm_onednn()
    return device
