"""Moss's hyperparameters, with the paper's symbols and defaults (section 4.2.4) where it names them."""

from dataclasses import dataclass, fields
from typing import ClassVar, Literal

from fedscale_ext import models
from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.data.layout.data_folder import data_folder
from fedscale_ext.data.layout.files import describe
from fedscale_ext.methods.device_types import DeviceTypesParams
from fedscale_ext.methods.moss.knowledge_transfer import Options, WireParams
from fedscale_ext.methods.moss.twice_differentiable import lacking_derivative
from fedscale_ext.models.taps import map_shapes

DEFAULT_TAPS = "default"


@dataclass(frozen=True)
class MossParams(DeviceTypesParams, WireParams):
    """Hyperparameters of Moss: types of devices, PROM, FILE and WIRE.

    The job's ``model`` is the proxies'. The paper takes that of the largest type.

    Attributes:
        taps: For each type, the modules that WIRE compares: names joined by +, or ``default``.
        proxy_taps: Modules of the proxies that WIRE compares, in the same form.
        proxy: Types exchange through proxies (PROM). Without it, each type learns from every other, and with
            ``same_arch_transfer: wire`` from itself, too.
        aggregation: ``file`` weighs proxies by their fidelity (FILE). ``fedavg`` weighs them by their devices' samples.
        proxies: ``global`` begins each proxy's round with the last round's mean of them. ``persistent`` begins it as
            that proxy ended.
        same_arch_transfer: A type of the proxies' architecture learns by ``wire`` as the others do, or is copied.
        bn_statistics: ``running`` keeps BatchNorm's statistics as transfers leave them. ``public`` re-estimates them
            on the public samples after every transfer and after FILE.
        ce_target: Target of the cross-entropy: labels, or the teacher's outputs. ``auto`` takes labels if the public
            data have the clients' classes.

    """

    taps: tuple[str, ...] = ()
    proxy_taps: str = DEFAULT_TAPS
    proxy: bool = True
    aggregation: Literal["file", "fedavg"] = "file"
    proxies: Literal["global", "persistent"] = "global"
    same_arch_transfer: Literal["wire", "copy"] = "wire"
    bn_statistics: Literal["running", "public"] = "running"
    ce_target: Literal["auto", "labels", "teacher"] = "auto"

    method: ClassVar[str] = "moss"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.taps and len(self.taps) != len(self.types):
            raise UserError(
                f"moss.taps has {len(self.taps)} entries for {len(self.types)} types; write default for one"
            )
        if self.proxies == "persistent" and not self.proxy:
            raise UserError("moss.proxies is persistent, but moss.proxy is off, so there are none; remove one of them")
        if self.ce_target == "teacher" and self.wire == "loc" and self.meta_update != "bilevel":
            raise UserError(
                f"moss.ce_target is given, but moss.wire loc with moss.meta_update {self.meta_update} has no "
                "cross-entropy; remove one of them"
            )

    def missing_settings(self, config: JobConfig) -> list[str]:
        """Taps, too, where WIRE matches layers of models whose family declares none. UserError for a named tap that is
        no module of its network."""
        lacking = super().missing_settings(config)
        self._check_taps(config)
        if self.wire == "ce":
            return lacking
        untapped = [
            ("moss.taps", name)
            for index, name in enumerate(self.types)
            if not (self.proxy and self.same_arch_transfer == "copy" and name == config.fedscale.model)
            and self.taps_of(index) is None
        ]
        if self.proxy and self.proxy_taps == DEFAULT_TAPS:
            untapped.append(("moss.proxy_taps", config.fedscale.model))
        return [
            *lacking,
            *(f"{key} for {name} (modules whose outputs are compared)" for key, name in untapped if _bare(name)),
        ]

    def _check_taps(self, config: JobConfig) -> None:
        """Of named models, where the data are on this machine, which tell the networks' input; the aggregator checks
        all of them when it knows the task."""
        tapped = [("moss.taps", name, self.taps_of(index)) for index, name in enumerate(self.types)]
        if self.proxy:
            tapped.append(("moss.proxy_taps", config.fedscale.model, named_taps(self.proxy_taps)))
        named = [(key, name, taps) for key, name, taps in tapped if taps is not None and not name.endswith(".json")]
        if not named:
            return
        try:
            folder = data_folder(config.fedscale.data_dir)
            about = describe(folder, config.fedscale.data_set, config.job.sample_shape)
            specs = {name: models.named_spec(name, about.shape, about.classes or 1) for _, name, _ in named}
        except UserError:  # no such folder, or no such model: told where these are needed
            return
        for key, name, taps in named:
            check_named_taps(key, name, specs[name], taps)

    def taps_of(self, index: int) -> tuple[str, ...] | None:
        """The named taps of a type, None for its family's own."""
        return named_taps(self.taps[index]) if self.taps else None

    def options(self, ce_target: Literal["labels", "teacher"]) -> Options:
        """Of WIRE."""
        settings = {field.name: getattr(self, field.name) for field in fields(WireParams)}
        return Options(ce_target=ce_target, **settings)


def _bare(name: str) -> bool:
    """Whether a named model's family declares no taps, whatever the task; a spec file tells when it is read."""
    try:
        spec = models.named_spec(name, (3, 64, 64), 10)
    except UserError:  # no such name: told with the others that there are
        return False
    return not (models.searched(spec) or hasattr(models.family(spec), "taps"))  # a supernet is refused for what it is


def check_named_taps(key: str, name: str, spec: ModelSpec, taps: tuple[str, ...]) -> None:
    """UserError that names the key and the model where one of the ``taps`` is no module of the network."""
    try:
        map_shapes(spec, taps)
    except UserError as error:
        raise UserError(f"{key} for {name}: {error}") from None


def check_derivatives(key: str, name: str, spec: ModelSpec) -> None:
    """UserError that names the key and the model where the network has no second derivative, which bilevel needs."""
    lacking = lacking_derivative(spec)
    if lacking is not None:
        raise UserError(
            f"{key} {name}: moss.meta_update bilevel needs second derivatives, and this network has none ({lacking}); "
            "choose another model, or moss.meta_update joint or frozen"
        )


def named_taps(text: str) -> tuple[str, ...] | None:
    """Names joined by +, None for the word default."""
    return None if text == DEFAULT_TAPS else tuple(name.strip() for name in text.split("+"))
