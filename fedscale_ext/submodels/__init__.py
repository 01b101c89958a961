"""Parts of models: which entries a submodel holds, taking them out, putting them back, averaging them."""

from fedscale_ext.submodels.coverage import coverage, extract, insert, prefix
from fedscale_ext.submodels.mean import CountMean, count_mean
from fedscale_ext.submodels.widths import leading, narrowed, rate_of, widths_at, window

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
