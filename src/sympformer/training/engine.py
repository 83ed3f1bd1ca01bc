"""Lightning Fabric as the engine: device, precision, processes. Imported only when training begins."""

import gc
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sympformer import machine
from sympformer.errors import InputError
from sympformer.models import LanguageModel, ModelConfig, build_model
from sympformer.training.config import TrainConfig

if TYPE_CHECKING:
    from lightning_fabric import Fabric

PRECISIONS: dict[str, Any] = {"float32": "32-true", "bfloat16": "bf16-mixed", "float16": "16-mixed"}


class LossOf(nn.Module):
    """The model as the engine sees it: tokens in, loss out."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        loss = self.model(inputs, targets=targets).loss
        assert loss is not None  # there are targets
        return loss


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
    if config.optimizer == "muon" and device == "cpu":  # torch orthogonalises its updates in bfloat16
        machine.use_bfloat16(instead="choose optimizer = 'adamw'")
    if config.precision == "bfloat16" and device == "cpu":
        machine.use_bfloat16(instead="choose precision = 'float32'")
    return device


def make_fabric(config: TrainConfig, cfg: ModelConfig) -> "Fabric":
    """The engine, launched: one process, or those that torchrun started."""
    device, world = pick_device(config), int(os.environ.get("WORLD_SIZE", "1"))
    from lightning_fabric import Fabric

    fabric = Fabric(
        accelerator=device,
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        num_nodes=world // int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        strategy=_strategy(config, cfg, world),
        precision=PRECISIONS[config.precision],
    )
    fabric.launch()
    return fabric


def _strategy(config: TrainConfig, cfg: ModelConfig, world: int) -> Any:
    if config.strategy == "fsdp2":
        if world == 1:
            raise InputError("strategy = 'fsdp2' splits a model between processes; start them with torchrun")
        from lightning_fabric.strategies import ModelParallelStrategy

        return ModelParallelStrategy(_shard, data_parallel_size=world, tensor_parallel_size=1)
    if world == 1:
        return "auto"
    from lightning_fabric.strategies import DDPStrategy

    return DDPStrategy(find_unused_parameters=leaves_parameters_unused(cfg))


def _shard(module: nn.Module, mesh: Any) -> nn.Module:
    """FSDP2: every block on its own, then the rest."""
    from torch.distributed.fsdp import fully_shard

    assert isinstance(module, LossOf)
    for block in module.model.blocks:
        fully_shard(block, mesh=mesh["data_parallel"])
    fully_shard(module, mesh=mesh["data_parallel"])
    return module


def leaves_parameters_unused(cfg: ModelConfig) -> bool:
    """Whether some parameters never get a gradient, such as the last layer's momentum gain where no MLP reads it."""
    probe = build_model(cfg.replace(dropout=0.0, vocab_size=64, block_size=2), seed=0)
    ids = torch.zeros(1, 2, dtype=torch.long)
    LossOf(probe)(ids, ids).backward()
    return any(parameter.grad is None for parameter in probe.parameters())


def all_sums(fabric: "Fabric", *values: float) -> list[float]:
    """Numbers summed over all processes."""
    return _reduced(fabric, "sum", *values)


def all_greatest(fabric: "Fabric", *values: float) -> list[float]:
    """The greatest of every number over all processes."""
    return _reduced(fabric, "max", *values)


def _reduced(fabric: "Fabric", how: str, *values: float) -> list[float]:
    device = "cpu" if fabric.device.type == "mps" else fabric.device  # mps has no float64, and never several processes
    result = fabric.all_reduce(torch.tensor(values, dtype=torch.float64, device=device), reduce_op=how)
    assert isinstance(result, Tensor)
    return result.tolist()


def leave_together(fabric: "Fabric") -> None:
    """Let the processes of a finished run go together: one that leaves early would abort the others.

    The groups' threads end here, too: one that outlives the interpreter can abort its process. A mesh (FSDP2) would
    keep them, because torch's own caches keep the mesh, and has no public way to let them go.
    """
    if fabric.world_size == 1:
        return
    fabric.barrier()
    torch.distributed.destroy_process_group()
    if mesh := getattr(fabric.strategy, "device_mesh", None):
        mesh._pg_registry.clear()
        gc.collect()
