"""What a module computes, without the machinery of modules around it.

A token at a time, the way through `nn.Module.__call__` costs as much as the small matrix product it leads to. A cache
keeps, for each layer, functions that go straight to the product. They read the weight anew at every call, so that
training, loading and sharding may go on around them.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sympformer.models.cache import LayerCache
from sympformer.models.layers import MLP, Norm, Projection, gelu

Function = Callable[[Tensor], Tensor]


def part(owner: nn.Module, name: str, cache: LayerCache | None) -> Function:
    """The module `owner.name`; for a token that continues a cache, and learns nothing, `direct` of it."""
    if cache is None or torch.is_grad_enabled():
        module: nn.Module = getattr(owner, name)
        return module
    kept: Function | None = cache.constants.get(name)
    if kept is None:
        kept = cache.constants[name] = direct(getattr(owner, name))
    return kept


def direct(module: nn.Module) -> Function:
    """A function that gives what calling the module gives, in evaluation.

    Only for the plain modules of this package: a module that someone listens to (hooks) or has changed (adapters,
    parametrised or quantised weights) is returned as it is.
    """
    if module._forward_hooks or module._forward_pre_hooks or module.training:
        return module
    return DIRECT.get(type(module), _as_it_is)(module)


def _as_it_is(module: nn.Module) -> Function:
    return module


def _projection(module: nn.Module) -> Function:
    parameters = module._parameters
    return lambda x: F.linear(x, parameters["weight"])  # type: ignore[arg-type]


def _norm(module: nn.Module) -> Function:
    assert isinstance(module, Norm)
    parameters, shape, eps = module._parameters, module.normalized_shape, module.eps
    # `F.layer_norm` looks up the state of cuDNN first, which takes longer than the norm of a token
    return lambda x: torch.layer_norm(x, shape, parameters["weight"], None, eps)


def _mlp(module: nn.Module) -> Function:
    assert isinstance(module, MLP)
    norm, up, down = direct(module.norm), direct(module.up), direct(module.down)
    return lambda x: down(gelu(up(norm(x))))


DIRECT: dict[type[nn.Module], Callable[[nn.Module], Function]] = {Projection: _projection, Norm: _norm, MLP: _mlp}
