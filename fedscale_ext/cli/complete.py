"""What may stand where the cursor is, for the shell's completion; no word of it may fail."""

from collections.abc import Callable, Iterable


def _completing(words: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Those of ``words()`` that go on as typed; none where they cannot be told: the shell then completes files."""

    def complete(incomplete: str) -> list[str]:
        try:
            return sorted({word for word in words() if word.startswith(incomplete)})
        except Exception:
            return []

    return complete


@_completing
def configurations() -> Iterable[str]:
    """Names of the shipped configurations, and of methods, which --on follows."""
    from fedscale_ext.config.job_config import shipped_configs

    return [*shipped_configs(), *preset_methods("")]


@_completing
def preset_methods() -> Iterable[str]:
    """Names of methods that train on a data preset."""
    from fedscale_ext.config.presets import startable_methods

    return startable_methods()


@_completing
def data_presets() -> Iterable[str]:
    """Names of data presets."""
    from fedscale_ext.config.presets import data_presets as presets

    return presets()


@_completing
def settings() -> Iterable[str]:
    """Keys of a configuration, each with its equals sign."""
    from fedscale_ext.config.arguments import fedscale_actions
    from fedscale_ext.config.job_config import ClusterKeys
    from fedscale_ext.config.keys import JobKeys

    return [f"{key}=" for key in (*JobKeys.model_fields, *fedscale_actions(), *ClusterKeys.model_fields)]


@_completing
def methods() -> Iterable[str]:
    """Names of the methods that are installed."""
    from fedscale_ext.config.methods import method_names

    return method_names()


@_completing
def jobs() -> Iterable[str]:
    """Names of jobs and sweeps that were started here."""
    from fedscale_ext.driver import jobs
    from fedscale_ext.driver.sweeps import sweep_records

    return [*jobs.names(), *sweep_records.names()]


@_completing
def jobs_and_arms() -> Iterable[str]:
    """Those, and the arms of sweeps, of which several jobs are meant."""
    from fedscale_ext.driver import jobs
    from fedscale_ext.driver.sweeps import sweep_records

    intact, _ = sweep_records.recorded()
    return [*jobs.names(), *(name for sweep in intact for name in (sweep.name, *sweep.arms))]


@_completing
def data_sets() -> Iterable[str]:
    """Names of the data sets that are known."""
    from fedscale_ext.data.registry import KNOWN

    return [entry.name for entry in KNOWN]


@_completing
def downloads() -> Iterable[str]:
    """Names of the data sets that come over the network."""
    from fedscale_ext.data.download.catalogue import catalogue

    return catalogue()
