"""Which client has each sample, and which samples are for tests."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.importing.partition import Partition, follow
from fedscale_ext.data.layout.split import check_fraction, held_out_mask


@dataclass(frozen=True)
class Allocation:
    """How samples are shared out between clients, and each client's between training and test.

    Args:
        seed: seed of all draws.
        test_fraction: share of each client's samples for tests, where the source has no split; 0 for none.
        partition: how to spread the samples over clients; None keeps the source's clients.
        local_test: set the source's split aside. Each client's test samples have its own mix of classes, as under a
            partition.

    """

    seed: int
    test_fraction: float
    partition: Partition | None = None
    local_test: bool = False

    def __post_init__(self) -> None:
        check_fraction(self.test_fraction)

    def clients(self, labels: np.ndarray, split: np.ndarray) -> np.ndarray:
        """Draw the client of each sample under the partition, int64 [n]; -1 for samples that are left over.

        Where the source has a split, test samples follow the training samples of their class. Elsewhere each client
        later holds ``test_fraction`` of its samples out.

        Args:
            labels: int [n].
            split: int [n], 1 for a test sample, 0 for a training sample, -1 where the source has no split.

        Raises:
            UserError: the samples do not do for the partition.

        """
        assert self.partition is not None
        test = split == 1
        if (split < 0).any() or test.all():
            return self.partition.assign(labels, self.seed, self.test_fraction)
        client = np.empty(len(labels), dtype=np.int64)
        client[~test] = self.partition.assign(labels[~test], self.seed)
        client[test] = follow(client[~test], labels[~test], labels[test], self.partition.clients, self.seed)
        return client

    def clients_by_domain(
        self, labels: np.ndarray, split: np.ndarray, domain: np.ndarray, names: Sequence[str]
    ) -> tuple[np.ndarray, list[str]]:
        """Draw the client of each sample so that each client has samples of one domain.

        Domains get as many clients as each other, to within one, and the partition spreads each domain's samples over
        its clients.

        Args:
            labels: int [n].
            split: int [n], as in :meth:`clients`.
            domain: int [n], index of each sample's domain.
            names: Names of the domains.

        Returns:
            The clients, int64 [n], -1 for samples that are left over; and their names.

        Raises:
            UserError: there are fewer clients than domains, or a domain's samples do not do for its clients.

        """
        assert self.partition is not None
        share, more = divmod(self.partition.clients, len(names))
        if not share:
            raise UserError(f"{self.partition.clients} clients cannot be of {len(names)} domains: ask for more")
        client = np.full(len(labels), -1, dtype=np.int64)
        clients: list[str] = []
        for number, name in enumerate(names):
            rows, size = np.flatnonzero(domain == number), share + (number < more)
            of_domain = replace(self, partition=replace(self.partition, clients=size))
            try:
                drawn = of_domain.clients(labels[rows], split[rows])
            except UserError as error:
                raise UserError(f"domain {name}: {error}") from None
            client[rows] = np.where(drawn < 0, -1, drawn + len(clients))
            clients += [f"{name}_{each}" for each in range(1, size + 1)]
        return client, clients

    def test_samples(self, client: np.ndarray, clients: int, labels: np.ndarray, split: np.ndarray) -> np.ndarray:
        """Return bool [n], True for a test sample: the source's split, else drawn for each client.

        Args:
            client: int [n], index of each sample's client, -1 for samples that are left over.
            clients: number of clients.
            labels: int [n].
            split: int [n], as in :meth:`clients`.

        """
        if (split >= 0).all():
            return (split == 1) & (client >= 0)
        by_class = labels if self.local_test or self.partition is not None else None
        return held_out_mask(client, clients, self.test_fraction, self.seed, by_class) & (client >= 0)
