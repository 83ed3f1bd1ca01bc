"""What may be given to a model: tokens, their places, a mask. What cannot be honoured is refused in words."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.utils import logging

from sympformer.errors import InputError, unknown_name
from sympformer.hf.cache import SympFormerCache
from sympformer.nn import same_text

# what others hand on with their arguments and what needs no answer here
IGNORED = ("cache_position", "num_items_in_batch", "output_router_logits")
# packed texts, told to flash attention; here places that start again say the same
PACKED = ("cu_seq_lens_k", "cu_seq_lens_q", "max_length_k", "max_length_q", "seq_idx")
KNOWN = (
    *("attention_mask", "input_ids", "inputs_embeds", "labels", "logits_to_keep", "output_attentions"),
    *("output_hidden_states", "output_momenta", "past_key_values", "position_ids", "shift_labels", "use_cache"),
)
logger = logging.get_logger(__name__)


class Given(NamedTuple):
    """What may be known of the tokens beside their ids, by the names of `LanguageModel.hidden`."""

    key_padding_mask: Tensor | None = None
    position_ids: Tensor | None = None
    inputs_embeds: Tensor | None = None
    mask: Tensor | None = None


def check_names(others: dict[str, Any], position_ids: Tensor | None) -> None:
    """Refuse everything a model of this kind cannot honour. What is None asks for nothing."""
    for name, value in others.items():
        if value is None or name in IGNORED:
            continue
        if name == "token_type_ids":
            if bool(value.any()):
                raise InputError("token_type_ids are not supported: there is one type of token; leave them out")
        elif name not in PACKED:
            raise unknown_name("argument", name, KNOWN)
        elif position_ids is None:
            raise InputError(f"{name} comes with position_ids here, which say where texts begin; give both")


def is_packed(position_ids: Tensor | None, attention_mask: Tensor | None) -> bool:
    """Whether rows hold several texts: no mask says otherwise, and places start again at 0 inside a row."""
    if position_ids is None or attention_mask is not None:
        return False
    return torch.compiler.is_compiling() or bool((position_ids[:, 1:] == 0).any())


def given_of(
    shape: tuple[int, int],
    attention_mask: Tensor | None,
    position_ids: Tensor | None,
    inputs_embeds: Tensor | None,
    cache: SympFormerCache | None,
) -> Given:
    """What is known of the new columns (B, T), as the language model takes it."""
    if attention_mask is not None and attention_mask.ndim == 4:
        return Given(None, position_ids, inputs_embeds, _visible(attention_mask))
    start = 0 if cache is None else cache.seen
    real = None if attention_mask is None else _tokens(shape, attention_mask, cache)
    mask = None
    if position_ids is not None and not start and is_packed(position_ids, attention_mask):
        mask = same_text(position_ids)
    elif position_ids is not None and _is_known(position_ids, shape, real, cache):
        position_ids = None
    return Given(None if real is None else ~real[:, start:], position_ids, inputs_embeds, mask)


def present(T: int, attention_mask: Tensor | None) -> Tensor | None:
    """Which of the new columns (B, T) hold a token, of a mask of all columns; None where it says nothing of that."""
    return None if attention_mask is None or attention_mask.ndim != 2 else attention_mask[:, -T:] != 0


def said_last(hidden: Tensor, real: Tensor | None) -> Tensor:
    """Hidden states (B, T, d) with those of a text's last token in the padding behind it.

    So the last column of a row says what comes next, wherever its padding stands.
    """
    if real is None or not (torch.compiler.is_compiling() or bool((real[:, :-1] & ~real[:, 1:]).any())):
        return hidden  # no padding behind a token
    last = (real * torch.arange(real.shape[1], device=real.device)).cummax(1).values
    return hidden.gather(1, last.unsqueeze(-1).expand_as(hidden))


def _visible(mask: Tensor) -> Tensor:
    """A mask (B, 1, T, S) of what is seen, of one in either of the usual forms: True, or 0 against large negatives."""
    if mask.dtype == torch.bool:
        return mask
    if not torch.compiler.is_compiling() and bool(((mask != 0) & (mask > -1e4)).any()):
        raise InputError("an attention_mask of numbers in four dimensions must hold 0 where a token is seen and large"
                         " negative numbers where it is not; give a boolean one, True where it is seen")  # fmt: skip
    return mask == 0


def _tokens(shape: tuple[int, int], mask: Tensor, cache: SympFormerCache | None) -> Tensor:
    """Which of all columns (B, seen + T) hold a token."""
    seen = 0 if cache is None else cache.seen
    whole = (shape[0], seen + shape[1])
    if mask.shape != whole:
        raise InputError(
            f"attention_mask must cover all columns, those in the cache too: {whole}, got {tuple(mask.shape)}"
        )
    real = mask != 0
    if cache is not None and seen:
        kept, before = cache.real, real[:, :seen]
        if not (bool(before.all()) if kept is None else torch.equal(before, kept)):
            raise InputError(
                "attention_mask hides other earlier tokens than the one the cache was made with; keep that one"
            )
    return real


def _is_known(places: Tensor, shape: tuple[int, int], real: Tensor | None, cache: SympFormerCache | None) -> bool:
    """Whether places are those that tokens have anyway, as `generate()` writes them down: then nothing depends on them.

    (A cache can go back only over tokens that stand where they stand anyway.)
    """
    (_, T), start = shape, 0 if cache is None else cache.seen
    if torch.compiler.is_compiling() or places.ndim != 2 or places.shape[1] != T:
        return False
    if real is None and cache is not None and cache.real is not None:
        real = torch.cat([cache.real, cache.real.new_ones(shape)], 1)
    if real is None:
        return bool((places == torch.arange(start, start + T, device=places.device)).all())
    return bool(((places == real.cumsum(1)[:, -T:] - 1) | ~real[:, -T:]).all())


# --- embeddings in place of ids, where other tables are asked by id


def ids_of(vectors: Tensor, table: Tensor, others: list[Tensor]) -> Tensor:
    """The tokens whose rows in the `table` (V, d) the vectors (B, T, d) are, bit for bit; -1, which has no row in the
    `others` (V, d), for one that is none of them, such as a soft prompt's."""
    table, vectors = table.detach(), vectors.detach().to(table.dtype)
    keys, order = _keys(table).sort()
    wanted = _keys(vectors)
    first = torch.searchsorted(keys, wanted).clamp_max(len(keys) - 1)
    last = (torch.searchsorted(keys, wanted, right=True) - 1).clamp_min(0)
    found = (table[order[first]] == vectors).all(-1)
    if torch.compiler.is_compiling():
        return torch.where(found, order[first], -1)
    if bool((found & (last > first)).any()):
        rows = torch.cat([other.detach() for other in others], 1)[order]
        changes = F.pad((rows[1:] != rows[:-1]).any(-1).cumsum(0), (1, 0))
        if bool((found & (changes[first] != changes[last])).any()):
            raise InputError(
                "a vector of inputs_embeds is the embedding of several tokens, which other tables (second_table,"
                " start_momentum) tell apart: give input_ids beside inputs_embeds"
            )
    if not bool(found.all()):
        logger.warning_once(
            "inputs_embeds holds vectors that are no token's embedding: tables that are looked up by id (second_table,"
            " start_momentum) have nothing for them"
        )
    return torch.where(found, order[first], -1)


def _keys(rows: Tensor) -> Tensor:
    """A number for every row that equal rows have in common, and others with a chance of 2^-64; sums wrap around."""
    bits = (rows.float() + 0.0).view(torch.int32).long()  # no -0.0, whose bits are others
    odd = torch.randint(2**62, rows.shape[-1:], generator=torch.Generator().manual_seed(0)).to(rows.device) * 2 + 1
    mixed = bits * odd
    return ((mixed ^ (mixed >> 29)) * odd).sum(-1)
