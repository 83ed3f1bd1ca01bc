"""Kinds of attention, one file each: the oracle of Hamiltonian layers, the classical form, the memory, the row."""

from sympformer.nn.attention.base import AttentionKind, GrowingRows, Memory, View
from sympformer.nn.attention.linear import LINEAR, LinearAttention, LinearOracle, StateMemory
from sympformer.nn.attention.softmax import SOFTMAX, PairMemory, SoftmaxAttention, SoftmaxField, SoftmaxOracle
from sympformer.nn.tables import register

register("attention", "softmax", SOFTMAX)
register("attention", "linear", LINEAR)

__all__ = [
    "AttentionKind",
    "GrowingRows",
    "LinearAttention",
    "LinearOracle",
    "Memory",
    "PairMemory",
    "SoftmaxAttention",
    "SoftmaxField",
    "SoftmaxOracle",
    "StateMemory",
    "View",
]
