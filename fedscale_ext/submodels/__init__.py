"""Submodels: which entries of a model they cover, and how to extract, insert and average them."""

from fedscale_ext.submodels.channels_by_rate import leading, narrowed, rate_of, widths_at, window
from fedscale_ext.submodels.extraction import coverage, extract, insert, prefix
from fedscale_ext.submodels.mean import CountMean, count_mean

__all__ = [
    "CountMean",
    "count_mean",
    "coverage",
    "extract",
    "insert",
    "leading",
    "narrowed",
    "prefix",
    "rate_of",
    "widths_at",
    "window",
]
