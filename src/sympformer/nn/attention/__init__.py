"""Kinds of attention, one file each: positions to a field."""

from sympformer.nn.attention.base import Attention
from sympformer.nn.attention.linear import LinearAttention, LinearField
from sympformer.nn.attention.softmax import SoftmaxAttention, SoftmaxField
from sympformer.nn.tables import register

register("attention", "softmax", SoftmaxAttention)
register("attention", "linear", LinearAttention)

__all__ = ["Attention", "LinearAttention", "LinearField", "SoftmaxAttention", "SoftmaxField"]
