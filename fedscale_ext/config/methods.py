"""Methods by name: those of this package, and an entry of the group ``fedscale_ext.methods`` for each other one."""

from importlib import import_module
from importlib.metadata import entry_points
from traceback import walk_tb

from fedscale_ext.core.errors import UserError, did_you_mean

GROUP = "fedscale_ext.methods"
_BUILT_IN = {
    "fedavg": "fedscale_ext.methods.averaging.fedavg:FedAvgAggregator",
    "local": "fedscale_ext.methods.personal.local:LocalAggregator",
    "fedprox": "fedscale_ext.methods.averaging.fedprox:FedProxAggregator",
    "fedyogi": "fedscale_ext.methods.averaging.fedyogi:FedYogiAggregator",
    "fedadam": "fedscale_ext.methods.averaging.fedadam:FedAdamAggregator",
    "qfedavg": "fedscale_ext.methods.averaging.qfedavg:QFedAvgAggregator",
    "fluid": "fedscale_ext.methods.submodel.fluid:FluidAggregator",
    "splitmix": "fedscale_ext.methods.submodel.splitmix:SplitMixAggregator",
    "heterofl": "fedscale_ext.methods.submodel.heterofl:HeteroFLAggregator",
    "fedrolex": "fedscale_ext.methods.submodel.fedrolex:FedRolexAggregator",
    "fjord": "fedscale_ext.methods.submodel.fjord:FjordAggregator",
    "lotteryfl": "fedscale_ext.methods.pruning.lotteryfl:LotteryFLAggregator",
    "hermes": "fedscale_ext.methods.pruning.hermes:HermesAggregator",
    "tailorfl": "fedscale_ext.methods.pruning.tailorfl:TailorFLAggregator",
    "fedmask": "fedscale_ext.methods.pruning.fedmask:FedMaskAggregator",
    "fedskel": "fedscale_ext.methods.pruning.fedskel:FedSkelAggregator",
    "fedtrans": "fedscale_ext.methods.fedtrans.aggregator:FedTransAggregator",
    "scalefl": "fedscale_ext.methods.submodel.scalefl:ScaleFLAggregator",
    "depthfl": "fedscale_ext.methods.submodel.depthfl:DepthFLAggregator",
    "hypemefed": "fedscale_ext.methods.hypemefed.aggregator:HypeMeFedAggregator",
    "fednas": "fedscale_ext.methods.search.fednas:FedNASAggregator",
    "fedoras": "fedscale_ext.methods.fedoras.aggregator:FedorASAggregator",
    "moss": "fedscale_ext.methods.moss.aggregator:MossAggregator",
    "fedmd": "fedscale_ext.methods.distillation.fedmd:FedMDAggregator",
    "feddf": "fedscale_ext.methods.distillation.feddf:FedDFAggregator",
    "dsfl": "fedscale_ext.methods.distillation.dsfl:DSFLAggregator",
    "fedgems": "fedscale_ext.methods.distillation.fedgems:FedGEMSAggregator",
    "fedet": "fedscale_ext.methods.distillation.fedet:FedETAggregator",
    "spider": "fedscale_ext.methods.search.spider:SpiderAggregator",
    "fedproto": "fedscale_ext.methods.exchange.fedproto:FedProtoAggregator",
    "fd": "fedscale_ext.methods.exchange.fd:FDAggregator",
    "lgfedavg": "fedscale_ext.methods.exchange.lgfedavg:LGFedAvgAggregator",
    "fedgh": "fedscale_ext.methods.exchange.fedgh:FedGHAggregator",
    "fedtgp": "fedscale_ext.methods.exchange.fedtgp:FedTGPAggregator",
    "fml": "fedscale_ext.methods.exchange.fml:FMLAggregator",
    "fedkd": "fedscale_ext.methods.exchange.fedkd:FedKDAggregator",
    "fedmrl": "fedscale_ext.methods.exchange.fedmrl:FedMRLAggregator",
    "fedgen": "fedscale_ext.methods.exchange.fedgen:FedGenAggregator",
    "fedl2g": "fedscale_ext.methods.exchange.fedl2g:FedL2GAggregator",
    "zerofl": "fedscale_ext.methods.pruning.zerofl:ZeroFLAggregator",
}


def method_names() -> list[str]:
    """Return the names of all methods that a configuration can choose."""
    return sorted(_import_paths())


def is_built_in(name: str) -> bool:
    """Whether a method is part of this package."""
    return name in _BUILT_IN


def check_name(name: str) -> None:
    """Raise UserError, with a suggestion, for a name that nobody registered."""
    if name not in _BUILT_IN:  # which spares a look at all installed packages
        _import_path(name)


def method_class(name: str) -> type:
    """Import the aggregator class of a method.

    UserError with a suggestion for a name that nobody registered. UserError with file and line for a module that
    cannot be imported.
    """
    path = _import_path(name)
    module, _, attribute = path.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except Exception as error:  # whatever a module's own lines raise
        what = error.msg if isinstance(error, SyntaxError) else error
        where = _line(error, module.partition(".")[0]) or f"entry point {path}"
        raise UserError(f"method {name} cannot be loaded: {where}: {type(error).__name__}: {what}") from error


def _line(error: Exception, package: str) -> str:
    """File and line of a package at which an import failed, the innermost; empty where none of it was run."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    location = ""
    called = error.__traceback__ and error.__traceback__.tb_next  # the first frame is that of method_class itself
    for frame, line in walk_tb(called):
        if str(frame.f_globals.get("__name__")).partition(".")[0] == package:
            location = f"{frame.f_code.co_filename}, line {line}"
    return location


def _import_path(name: str) -> str:
    paths = _import_paths()
    if name not in paths:
        known = ", ".join(sorted(paths))
        hint = did_you_mean(name, paths) or f"; there are {known}, and others once their package is installed"
        raise UserError(f"there is no method {name!r}{hint}")
    return paths[name]


def _import_paths() -> dict[str, str]:
    others = {entry.name: entry.value for entry in entry_points(group=GROUP)}
    return {**others, **_BUILT_IN}  # a name of ours is ours in every record
