"""The oracles of the flows, fast, each beside the naive twin it is tested against."""

from sympformer.ops.door import count_passes, fast, note_pass, plain
from sympformer.ops.flash import hiding
from sympformer.ops.linear import (
    linear_attention,
    linear_attention_naive,
    linear_attention_step,
    linear_rows,
    symplectic_scan,
    symplectic_scan_naive,
    symplectic_step,
)
from sympformer.ops.loss import linear_cross_entropy, linear_cross_entropy_naive
from sympformer.ops.pointwise import norm_of_sum, norm_of_sum_naive, plus
from sympformer.ops.softmax import (
    attention,
    attention_lse,
    attention_lse_naive,
    attention_rows,
    cached_attention_lse,
    merge_attention,
)

# fmt: off
__all__ = [
    "attention", "attention_lse", "attention_lse_naive", "attention_rows", "cached_attention_lse",
    "count_passes", "fast", "hiding", "linear_attention", "linear_attention_naive", "linear_attention_step",
    "linear_cross_entropy", "linear_cross_entropy_naive", "linear_rows", "merge_attention", "norm_of_sum",
    "norm_of_sum_naive", "note_pass", "plain", "plus", "symplectic_scan",
    "symplectic_scan_naive", "symplectic_step",
]
