"""Device, precision and processes on plain torch: one process, or those that torchrun started (DDP or FSDP2)."""

import gc
import os
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from sympformer import machine
from sympformer.errors import InputError
from sympformer.models import LanguageModel
from sympformer.training.config import TrainConfig
from sympformer.training.evaluate import LossOf

HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}
WATCHED = (signal.SIGINT, signal.SIGTERM)
ASK_SECONDS, MOST_STEPS = 1.0, 64  # between two questions among processes; torchrun kills 30 s after its signal
ECHO_SECONDS = 2.0  # a launcher passes on a signal that its processes may have had already


class Engine:
    """Where a run computes. `rank` of `world` processes; the first one speaks, writes and decides for all."""

    def __init__(self, config: TrainConfig) -> None:
        device, local = pick_device(config), int(os.environ.get("LOCAL_RANK", "0"))
        self.rank, self.world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        self.first = self.rank == 0
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
            nccl = device == "cuda"
            dist.init_process_group("nccl" if nccl else "gloo", device_id=self.device if nccl else None)

    def set_up(self, model: LanguageModel, compiled: bool) -> None:
        """Put the model on its device, shared or split between the processes; from now on `loss` is its loss."""
        loss_of: Any = LossOf(model.to(self.device))
        if self.split:  # FSDP2: every block on its own, then the rest
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard

            self._mesh = init_device_mesh(self.device.type, (self.world,))
            for part in (*model.blocks, loss_of):
                fully_shard(part, mesh=self._mesh)
        elif self.world > 1:
            unused = leaves_unused(model)
            loss_of = nn.parallel.DistributedDataParallel(loss_of, find_unused_parameters=unused)
        self._shared, self.loss_of = loss_of, torch.compile(loss_of) if compiled else loss_of

    def autocast(self) -> AbstractContextManager[Any]:
        """The precision of forward passes."""
        return nullcontext() if self.half is None else torch.autocast(self.device.type, self.half)

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of a batch."""
        with self.autocast():
            loss: Tensor = self.loss_of(inputs, targets)
        return loss

    def one_pass(self, last: bool) -> AbstractContextManager[Any]:
        """Around a pass, forward and backward: processes sum their gradients in the last of a step's passes only."""
        if self.split:
            self._shared.set_requires_gradient_sync(last)
        return nullcontext() if last or self.split or self.world == 1 else self._shared.no_sync()

    def backward(self, loss: Tensor) -> None:
        """Gradients of a loss."""
        self.scaler.scale(loss).backward()

    def update(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """One step of the optimizers with gradients that have been unscaled and clipped."""
        for optimizer in optimizers:
            self.scaler.step(optimizer)
            optimizer.zero_grad(set_to_none=True)
        self.scaler.update()

    def mean(self, figures: Tensor) -> Tensor:
        """The mean of a tensor over the processes."""
        if self.world > 1:
            dist.all_reduce(figures)
            figures /= self.world
        return figures

    def over_all(self, values: Sequence[float], greatest: bool = False) -> list[float]:
        """Numbers summed over several processes, or the greatest of each."""
        found = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(found, dist.ReduceOp.MAX if greatest else dist.ReduceOp.SUM)
        return [float(value) for value in found]

    def told(self, what: Any) -> Any:
        """What the first process says, in all of them."""
        box = [what]
        if self.world > 1:
            dist.broadcast_object_list(box)
        return box[0]

    def wait(self) -> None:
        """Until all processes have come here."""
        if self.world > 1:
            dist.barrier()

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
    there = {"auto": True, "cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there[config.device]:
        raise InputError(
            f"device = '{config.device}' asks for a GPU and there is none; choose device = 'cpu' or 'auto'"
        )
    device = "cuda" if config.device == "auto" and there["cuda"] else config.device.replace("auto", "cpu")
    if config.precision == "float16" and device != "cuda":
        raise InputError("precision = 'float16' needs a CUDA device; elsewhere choose bfloat16 or float32")
    if device == "cpu":
        machine.calm_onednn()
    return device


# --- Ctrl-C and SIGTERM as a wish: the step in hand is finished and saved; a second one stops at once


class StopSignal:
    """`with StopSignal() as stop:` and then look at `stop.received` between steps.

    echo: seconds after a signal in which another one is the same wish.
    """

    def __init__(self, echo: float = 0.0) -> None:
        self.received: int | None = None
        self._echo, self._since = echo, 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopSignal":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in WATCHED}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _note(self, number: int, frame: object) -> None:
        now = time.monotonic()
        if self.received is None:
            self.received, self._since = number, now
        elif now - self._since >= self._echo:
            self.__exit__()
            signal.raise_signal(number)


class SharedStop:
    """A stop that all processes agree on. They ask each other about once a second, however long a step takes."""

    def __init__(self, engine: Engine, stop: StopSignal, step: int) -> None:
        """step: steps done."""
        self._engine, self._stop = engine, stop
        self._asked, self._next = (time.monotonic(), step), step + 1

    def received(self, step: int) -> int | None:
        """The signal that any process received, the same in all. To be called after every step."""
        if self._engine.world == 1:
            return self._stop.received
        if step < self._next:
            return None
        now, (since, first) = time.monotonic(), self._asked
        # the first process's clock speaks for all, else they would not ask at the same step
        pace = (now - since) / (step - first) if self._engine.first else 0.0
        number, pace = self._engine.over_all((float(self._stop.received or 0), pace), greatest=True)
        self._asked = (now, step)
        self._next = step + max(1, min(MOST_STEPS, int(ASK_SECONDS / max(pace, 1e-9))))
        return int(number) or None
