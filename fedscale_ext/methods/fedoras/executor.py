"""FedorAS's executors: clients train a path in each step (section 3.1) or one model (3.3), or judge paths (3.2)."""

from argparse import Namespace
from typing import ClassVar

from fedscale_ext.executor.executor import MultiModelExecutor
from fedscale_ext.methods.fedoras.client import FedorASClient, reads_everywhere
from fedscale_ext.methods.fedoras.judging import Judge
from fedscale_ext.tasks.kind import Kind
from fedscale_ext.training.local_training import MultiModelClient


class FedorASExecutor(MultiModelExecutor):
    """Its clients are told which operators they hold, and of which supernet."""

    kinds: ClassVar[tuple[Kind, ...]] = (Judge(),)

    def get_client_trainer(self, conf: Namespace) -> MultiModelClient:
        """How a client trains what it is handed."""
        spec = self.bench.spec(conf.model_key)
        if getattr(conf, "paths", None) is None and not reads_everywhere(spec):
            return MultiModelClient(conf)
        return FedorASClient(conf, spec, self.bench.host(conf.model_key))
