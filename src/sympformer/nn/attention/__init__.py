"""Kinds of attention, one file each: the oracle of Hamiltonian layers, the classical form, the memory, the row."""

from sympformer.nn.attention.base import AttentionKind, View, same_text
from sympformer.nn.attention.linear import LinearAttention, LinearOracle, StateMemory
from sympformer.nn.attention.memory import FixedRows, GrowingRows, Memory, fixed
from sympformer.nn.attention.pairs import PairMemory
from sympformer.nn.attention.softmax import CurvedAttention, SoftmaxAttention, SoftmaxField, SoftmaxOracle

__all__ = [
    "AttentionKind",
    "CurvedAttention",
    "FixedRows",
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
    "fixed",
    "same_text",
]
