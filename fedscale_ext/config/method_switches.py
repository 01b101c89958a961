"""Which hyperparameters a method reads only with some values of another one: one table, for notes, sweeps and pages.

It is a table, not a part of the methods' classes, since these import torch: a driver starts jobs without. A row is only
of keys that are sure to change no result; tests hold the rows against the classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

# YAML and command lines turn these words into values before anybody knows that a word was meant
WORDS = ((True, "on"), (False, "off"), (None, "none"))


@dataclass(frozen=True)
class ReadWith:
    """Hyperparameters that a method reads only with some values of a ``switch``, another one of it.

    ``values`` are these values, as a configuration writes them. ``set`` stands for all that is true, above 0 or not
    empty, ``unset`` for the others. ``default`` is the switch's.
    """

    keys: tuple[str, ...]
    switch: str
    default: Any
    values: tuple[str, ...] | Literal["set", "unset"] = "set"

    def off(self, params: Mapping[str, Any]) -> str | None:
        """The switch's value in ``params``, as text, where it leaves the keys unread; None where they are read."""
        value = params.get(self.switch, self.default)
        if isinstance(self.values, tuple):
            value = next((word for read, word in WORDS if value is read), value)
            return None if value in self.values else str(value)
        is_read = bool(value) == (self.values == "set")
        return None if is_read else _text(value)

    @property
    def words(self) -> str:
        """With which values the keys are read, as Markdown."""
        if isinstance(self.values, tuple):
            first, *others = self.values
            *middle, last = [f"`{self.switch}: {first}`", *(f"`{value}`" for value in others)]
            return f"with {', '.join(middle)} or {last}" if middle else f"with {last}"
        if isinstance(self.default, bool):
            return f"with `{self.switch}: {_text(self.values == 'set')}`"
        return f"with `{self.switch}` above 0" if self.values == "set" else f"without `{self.switch}`"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list | tuple) else str(value)


_MATCHED = ReadWith(("param_ratio",), "match_params", (), "unset")
_LEARNT = ("loc+ce", "loc")  # moss.wire

#: By method; all rows that have a key must hold.
SWITCHES: Mapping[str, tuple[ReadWith, ...]] = {
    "depthfl": (
        ReadWith(("kd", "ramp_up"), "inclusive", False, "unset"),
        ReadWith(("ramp_up",), "kd", True),
    ),
    "feddf": (ReadWith(("patience", "batch_size", "lr"), "steps", 10_000),),
    "fedmask": (_MATCHED,),
    "fedmd": (ReadWith(("digest_batch",), "digest_epochs", 1),),
    "fednas": (ReadWith(("lr_min",), "schedule", "cosine", ("cosine",)),),
    "fedoras": (
        ReadWith(("opa_scope",), "aggregation", "opa", ("opa",)),
        ReadWith(("population", "mutation", "objectives"), "search", "nsga2", ("nsga2",)),
        ReadWith(("evaluation_rounds",), "evaluation", "central", ("federated",)),
        ReadWith(("finetune_clients", "finetune_lr", "finetune_lr_end"), "finetune_rounds", 100),
        ReadWith(("twin_epochs", "twin_batch", "twin_lr", "twin_lr_end", "twin_clients"), "twin_rounds", 0),
    ),
    "fedskel": (_MATCHED,),
    "fedtrans": (
        ReadWith(("eta", "decay_clock", "normalise"), "decay", "on", ("on",)),
        ReadWith(("eta", "decay", "decay_clock", "l2s", "align", "normalise"), "sharing", "soft", ("soft",)),
        ReadWith(("deepen_count",), "transform_policy", "alternate", ("alternate", "deepen_only")),
        ReadWith(("stop_gain", "stop_rounds"), "stop", "rounds", ("accuracy",)),
    ),
    "fluid": (ReadWith(("share", "hysteresis"), "rates", "capacity", ("time",)),),
    "hermes": (_MATCHED,),
    "hypemefed": (
        ReadWith(
            ("k", "hidden", "epochs", "lr", "variant", "loss", "optimizer", "generate", "precision", "rescale",
             "sample_order"), "missing", "generated", ("generated",),
        ),
        ReadWith(("generated_weight", "warmup"), "missing", "generated", ("generated", "stale", "random")),
    ),
    "moss": (
        ReadWith(("proxy_taps",), "proxy", True),
        ReadWith(("beta", "pair_reduce"), "wire", "loc+ce", (*_LEARNT, "ce+mse")),
        ReadWith(("meta_update", "meta_lr", "meta_weight_decay", "inner_steps"), "wire", "loc+ce", _LEARNT),
        ReadWith(("meta_lr", "meta_weight_decay"), "meta_update", "bilevel", ("bilevel", "joint")),
        ReadWith(("inner_steps",), "meta_update", "bilevel", ("bilevel",)),
    ),
    "scalefl": (ReadWith(("gamma", "temperature", "kd_after", "detach"), "self_kd", False),),
    "tailorfl": (_MATCHED,),
    "zerofl": (ReadWith(("mask_ratio",), "sparsity", 0.9),),
}  # fmt: skip


def switched_off(method: str, name: str, params: Mapping[str, Any]) -> tuple[str, str] | None:
    """Tell which hyperparameter leaves another one unread.

    Args:
        method: Name of the method.
        name: The hyperparameter, without the method's name.
        params: The hyperparameters that a job sets, by their bare names.

    Returns:
        Key and value of the one that does; None where the job reads it.

    """
    for row in SWITCHES.get(method, ()):
        if name in row.keys and (value := row.off(params)) is not None:
            return f"{method}.{row.switch}", value
    return None


def read_only_with(method: str, name: str) -> str:
    """Say in a sentence, as Markdown, with what a hyperparameter is read; empty where it always is."""
    words = [row.words for row in SWITCHES.get(method, ()) if name in row.keys]
    return f"Read only {', and '.join(words)}." if words else ""
