"""Load an accelerated model that `save_pretrained` wrote."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sympformer.errors import InputError, missing_extra
from sympformer.inertia.attach import attach
from sympformer.inertia.step import KEY, InertiaConfig

FETCHING = ("revision", "token", "cache_dir", "local_files_only")


def load_accelerated(name: str | Path, model_class: Any = None, **options: Any) -> Any:
    """The accelerated Hugging Face model in a folder (or hub repository), scalars included.

    model_class: another class of the family than the one that was saved, as GPT2ForSequenceClassification. options:
    those of `from_pretrained`, as dtype. Only safetensors are read. The scalars stay in float32.
    """
    if find_spec("transformers") is None:
        raise missing_extra("load_accelerated", "transformers", "hf")
    from transformers import AutoConfig

    try:
        found = AutoConfig.from_pretrained(name, **{key: options[key] for key in FETCHING if key in options})
    except (OSError, ValueError) as error:
        raise InputError(f"{name} holds no Hugging Face model: {' '.join(str(error).split())}") from error
    if not is_accelerated(found.to_dict()):
        raise InputError(f"{name} was not saved accelerated: load it with transformers, then sympformer.accelerate it")
    plain, config = _class_of(name, found, model_class), InertiaConfig.from_dict(getattr(found, KEY))

    def start(self: Any, *args: Any, **kwargs: Any) -> None:
        plain.__init__(self, *args, **kwargs)
        attach(self, config)
        self._keep_in_fp32_modules_strict = {*(self._keep_in_fp32_modules_strict or ()), "inertia"}

    loader: Any = type(plain.__name__, (plain,), {"__init__": start, "__module__": plain.__module__})
    with_info = bool(options.pop("output_loading_info", False))
    model, info = loader.from_pretrained(name, use_safetensors=True, output_loading_info=True, **options)
    lacking = sorted(key for key in info["missing_keys"] if ".inertia." in f".{key}")
    if lacking:  # transformers would go on with whatever was in the memory
        raise InputError(f"the weights in {name} lack {', '.join(lacking[:3])}: save the accelerated model again")
    model.__class__ = plain
    return (model, info) if with_info else model


def is_accelerated(model_config: dict[str, Any]) -> bool:
    """Whether a Hugging Face config says that the weights beside it have scalars of ours."""
    return model_config.get(KEY) is not None


def _class_of(name: str | Path, model_config: Any, chosen: Any) -> Any:
    """The class that was chosen, or else the one that was saved."""
    import transformers

    saved = next(iter(model_config.architectures or []), None)
    found = getattr(transformers, str(saved), None) if chosen is None else chosen
    if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel):
        return found
    if chosen is None:
        raise InputError(f"{name} is of class {saved}, which transformers does not have: give model_class=")
    raise InputError(f"model_class must be a model of transformers, as GPT2Model (no Auto class), got {chosen!r}")
