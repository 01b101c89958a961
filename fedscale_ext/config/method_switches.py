"""Which hyperparameters a method reads only with some values of another one: one table, for notes, sweeps and pages.

It is a table, not a part of the methods' classes, since these import torch: a driver starts jobs without. A row is only
of keys that are sure to change no result; tests hold the rows against the classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fedscale_ext.core.errors import enumerated

# YAML and command lines turn these words into values before anybody knows that a word was meant
WORDS = ((True, "on"), (False, "off"), (None, "none"))


@dataclass(frozen=True)
class ReadWith:
    """Hyperparameters that a method reads only with some values of a ``switch``, another one of it.

    ``values`` are these values, as a configuration writes them. ``set`` stands for all that is true, above 0 or not
    empty, ``unset`` for the others. ``default`` is the switch's. Where there is an ``alternative``, its values suffice,
    too; its own ``keys`` are empty.
    """

    keys: tuple[str, ...]
    switch: str
    default: Any
    values: tuple[str, ...] | Literal["set", "unset", "below 1"] = "set"
    alternative: "ReadWith | None" = None

    def off(self, params: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        """The switches that leave the keys unread, with their values in ``params`` as text; empty: they are read."""
        value = self._off(params)
        if value is None:
            return ()
        off = ((self.switch, value),)
        if self.alternative is None:
            return off
        others = self.alternative.off(params)
        return off + others if others else ()

    def _off(self, params: Mapping[str, Any]) -> str | None:
        value = params.get(self.switch, self.default)
        if isinstance(self.values, tuple):
            value = next((word for read, word in WORDS if value is read), value)
            return None if value in self.values else str(value)
        if self.values == "below 1":  # a value that is no number is refused later
            return str(value) if isinstance(value, int | float) and value >= 1 else None
        is_read = bool(value) == (self.values == "set")
        return None if is_read else _text(value)

    @property
    def words(self) -> str:
        """With which values the keys are read, as Markdown."""
        if self.values == "unset" and not isinstance(self.default, bool):
            return f"without `{self.switch}`"
        return f"with {enumerated(self._conditions(), 'or')}"

    def _conditions(self) -> list[str]:
        more = [] if self.alternative is None else self.alternative._conditions()
        if isinstance(self.values, tuple):
            first, *others = self.values
            return [f"`{self.switch}: {first}`", *(f"`{value}`" for value in others), *more]
        if isinstance(self.default, bool):
            return [f"`{self.switch}: {_text(self.values == 'set')}`", *more]
        return [f"`{self.switch}` {'above 0' if self.values == 'set' else self.values}", *more]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list | tuple) else str(value)


_MATCHED = ReadWith(("param_ratio",), "match_params", (), "unset")
_LEARNT = ("loc+ce", "loc")  # moss.wire
_MATCHES = (*_LEARNT, "ce+mse")
_TUNED = ("finetune_epochs", "finetune_batch", "finetune_schedule", "finetune_augment")  # of fedoras, by its twins too
_SHARED = ("eta", "decay", "decay_clock", "l2s", "align", "normalise")  # of fedtrans, between models

#: By method; all rows that have a key must hold.
SWITCHES: Mapping[str, tuple[ReadWith, ...]] = {
    "depthfl": (
        ReadWith(("kd", "ramp_up"), "inclusive", False, "unset"),
        ReadWith(("ramp_up",), "kd", True),
    ),
    "feddf": (ReadWith(("patience", "batch_size", "lr", "validation"), "steps", 10_000),),
    "fedmask": (_MATCHED,),
    "fedmd": (ReadWith(("digest_batch",), "digest_epochs", 1),),
    "fednas": (ReadWith(("lr_min",), "schedule", "cosine", ("cosine",)),),
    "fedoras": (
        ReadWith(("opa_scope",), "aggregation", "opa", ("opa",)),
        ReadWith(
            ("mean_over",), "aggregation", "opa", ("fedavg", "plain"),
            ReadWith((), "opa_scope", "all", ("buffers_only",)),
        ),
        ReadWith(("population", "mutation", "objectives"), "search", "nsga2", ("nsga2",)),
        ReadWith(("evaluation_rounds",), "evaluation", "central", ("federated",)),
        ReadWith(
            ("val_fraction",), "evaluation", "central", ("central",), ReadWith((), "compare_rankings", False),
        ),
        ReadWith(("finetune_clients", "finetune_lr", "finetune_lr_end"), "finetune_rounds", 100),
        ReadWith(_TUNED, "finetune_rounds", 100, "set", ReadWith((), "twin_rounds", 0)),
        ReadWith(("twin_epochs", "twin_batch", "twin_lr", "twin_lr_end", "twin_clients"), "twin_rounds", 0),
    ),
    "fedskel": (_MATCHED,),
    "fedtrans": (
        ReadWith(("eta", "decay_clock", "normalise"), "decay", "on", ("on",)),
        ReadWith(("decay_clock", "normalise"), "eta", 0.98, "below 1"),
        ReadWith((*_SHARED, "similarity"), "sharing", "soft", ("soft",)),
        ReadWith(
            ("sharing", *_SHARED), "warmup", "on", ("on",), ReadWith((), "similarity", "lineage", ("one",)),
        ),
        ReadWith(("deepen_count",), "transform_policy", "alternate", ("alternate", "deepen_only")),
        ReadWith(
            ("widen_factor", "widen", "symmetry"), "transform_policy", "alternate", ("alternate", "widen_only"),
        ),
        ReadWith(("cell_selection",), "alpha", 0.9),
        ReadWith(("stop_gain", "stop_rounds"), "stop", "rounds", ("accuracy",)),
    ),
    "fluid": (
        ReadWith(("share", "hysteresis"), "rates", "capacity", ("time",)),
        ReadWith(("every",), "increment", 0.2),
    ),
    "hermes": (_MATCHED, ReadWith(("threshold", "step"), "start", "whole", ("whole",))),
    "hypemefed": (
        ReadWith(
            ("k", "hidden", "epochs", "lr", "variant", "loss", "optimizer", "generate", "precision", "rescale",
             "sample_order"), "missing", "generated", ("generated",),
        ),
        ReadWith(("generated_weight", "warmup"), "missing", "generated", ("generated", "stale", "random")),
        ReadWith(("k", "loss"), "variant", "low_rank", ("low_rank",)),
        ReadWith(("generated_weight", "rescale"), "warmup", 0.0, "below 1"),
    ),
    "moss": (
        ReadWith(("proxy_taps",), "proxy", True),
        ReadWith(
            ("beta", "pair_reduce", "meta_layers", "projection_start", "persistent", "taps", "proxy_taps"),
            "wire", "loc+ce", _MATCHES,
        ),
        ReadWith(("meta_update", "meta_lr", "meta_weight_decay", "inner_steps"), "wire", "loc+ce", _LEARNT),
        ReadWith(("meta_lr", "meta_weight_decay"), "meta_update", "bilevel", ("bilevel", "joint")),
        ReadWith(("inner_steps",), "meta_update", "bilevel", ("bilevel",)),
    ),
    "scalefl": (
        ReadWith(("gamma", "temperature", "kd_after", "detach"), "self_kd", False),
        ReadWith(("gamma", "temperature", "detach"), "kd_after", 0.25, "below 1"),
    ),
    "splitmix": (ReadWith(("rescale_init",), "r", 0.125, "below 1"),),
    "tailorfl": (_MATCHED,),
    "zerofl": (ReadWith(("mask_ratio", "upload", "skips_zeros"), "sparsity", 0.9),),
}  # fmt: skip


def switched_off(method: str, name: str, params: Mapping[str, Any]) -> tuple[str, str] | None:
    """Tell which hyperparameter leaves another one unread.

    Args:
        method: Name of the method.
        name: The hyperparameter, without the method's name.
        params: The hyperparameters that a job sets, by their bare names.

    Returns:
        Key and value of the one that does; None where the job reads it. Where two do it together, the value goes on
        with key and value of the second one.

    """
    for row in SWITCHES.get(method, ()):
        if name in row.keys and (off := row.off(params)):
            (switch, value), *others = off
            return f"{method}.{switch}", " and ".join([value, *(f"{method}.{key} is {each}" for key, each in others)])
    return None


def read_only_with(method: str, name: str) -> str:
    """Say in a sentence, as Markdown, with what a hyperparameter is read; empty where it always is."""
    words = [row.words for row in SWITCHES.get(method, ()) if name in row.keys]
    return f"Read only {', and '.join(words)}." if words else ""
