"""A data set as the clients see it: decoded samples, and which rows are whose."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from fedscale_ext.data.importing.notes import alike_note, shared_note
from fedscale_ext.data.layout.decoded_folder import Decoded, open_decoded
from fedscale_ext.data.layout.files import gaps_note, names_in
from fedscale_ext.data.layout.label_names import contradiction_notes, skipped_notes
from fedscale_ext.data.layout.labels import spent_note, untrained_note
from fedscale_ext.data.layout.split import check_fraction, group, held_out_mask
from fedscale_ext.data.progress import Progress
from fedscale_ext.data.public_draw import PublicDraw, choose
from fedscale_ext.data.registry import Shape, normalisation
from fedscale_ext.util.text_columns import pack_texts

Rows = np.ndarray | Sequence[int]
TEST_CSV = "test.csv"  # the ``test_source`` of data whose test samples are those of that file


@dataclass(frozen=True)
class ClientRows:
    """Row numbers by client in two arrays: client ``c`` has ``rows[offsets[c - 1]:offsets[c]]``."""

    rows: np.ndarray
    offsets: np.ndarray

    def of(self, client: int) -> np.ndarray:
        """Return the rows of a client (1..N), ascending."""
        if not 1 <= client < len(self.offsets):
            raise IndexError(f"there is no client {client}: they are 1..{len(self.offsets) - 1}")
        return self.rows[self.offsets[client - 1] : self.offsets[client]]

    @property
    def sizes(self) -> np.ndarray:
        """Number of rows of each client, int64 [N]."""
        return np.diff(self.offsets)


def normalised(pixels: torch.Tensor, mean: torch.Tensor, std: torch.Tensor) -> torch.Tensor:
    """Normalise uint8 pixels or float16 values [n, C, H, W] to float32, on any device: less mean, by deviation."""
    scaled = pixels.float().div_(255.0) if pixels.dtype == torch.uint8 else pixels.float()
    return scaled.sub_(mean.to(pixels.device)).div_(std.to(pixels.device))


@dataclass(frozen=True)
class DataSet:
    """Samples of all clients. Clients are 1..N in order of first appearance in train.csv.

    ``x`` uint8 pixels or float16 values [samples, C, H, W], a read-only memory map; ``y`` int64 [samples].
    ``digest`` stands for pixels, labels, clients, their names and the split into training and test rows, so two
    processes that report the same digest see the same data. ``test_source`` says where test rows come from ("test.csv"
    or a split), ``test_only_clients`` counts clients in test.csv who never train.
    ``public_rows`` int64 are kept back for the server: no client has them. ``notes``: what was changed in pictures,
    label_names that contradict label_ids, test samples that are training samples too, classes by the labels that have
    no sample, and clients whose names are alike.
    """

    name: str
    data_set: str
    generated: bool
    x: np.ndarray
    y: np.ndarray
    num_classes: int
    client_names: list[str]
    train: ClientRows
    test: ClientRows
    digest: str
    test_source: str
    test_only_clients: int
    public_rows: np.ndarray
    notes: tuple[str, ...]
    _mean: torch.Tensor = field(repr=False)
    _std: torch.Tensor = field(repr=False)

    @property
    def num_clients(self) -> int:
        """Clients that have training samples."""
        return len(self.client_names)

    @property
    def input_shape(self) -> Shape:
        """(C, H, W) of a sample."""
        channels, height, width = self.x.shape[1:]
        return channels, height, width

    @property
    def train_sizes(self) -> np.ndarray:
        """Training samples of each client: int64 [num_clients]."""
        return self.train.sizes

    @property
    def test_sizes(self) -> np.ndarray:
        """Test samples of each client: int64 [num_clients]."""
        return self.test.sizes

    def train_rows(self, client: int) -> np.ndarray:
        """Return row numbers of a client's training samples, int64, ascending."""
        return self.train.of(client)

    def test_rows(self, client: int) -> np.ndarray:
        """Return row numbers of a client's test samples, int64, ascending; may be empty."""
        return self.test.of(client)

    def batch(self, rows: Rows) -> torch.Tensor:
        """Return normalised pixels or values of rows, float32 [len(rows), C, H, W]; the same at each call."""
        return self.normalised(torch.from_numpy(np.asarray(self.x[np.asarray(rows, dtype=np.int64)])))

    def normalised(self, pixels: torch.Tensor) -> torch.Tensor:
        """Normalise uint8 pixels or float16 values [n, C, H, W] to float32, on any device: less mean, by deviation."""
        return normalised(pixels, self._mean, self._std)

    def labels(self, rows: Rows) -> torch.Tensor:
        """Return the labels of rows, int64 [len(rows)]."""
        return torch.from_numpy(self.y[np.asarray(rows, dtype=np.int64)])

    def tensors(self, rows: Rows) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ``(batch(rows), labels(rows))``."""
        return self.batch(rows), self.labels(rows)


def open_data_set(
    data_dir: str | os.PathLike[str],
    data_set: str,
    *,
    data_map_file: str | os.PathLike[str] | None = None,
    test_split: float = 0.2,
    seed: int = 1,
    input_shape: tuple[int, int, int] | None = None,
    progress: Progress | None = None,
    public_draw: PublicDraw | None = None,
) -> DataSet:
    """Open a data folder in FedScale's layout; the first time, decode its images into the cache.

    ``data_map_file`` takes the place of train.csv. A client's test samples are its rows in test.csv;
    without a test.csv (or with one that names no training client), ``test_split`` of each client's rows is
    held out, drawn from ``seed``. ``public_draw`` takes training samples away from the clients, drawn from it too.
    ``input_shape`` (C, H, W) is as for ``open_decoded``. Raises UserError for anything that is missing or broken,
    naming the file (and line) and what to do.
    """
    check_fraction(test_split)
    decoded = open_decoded(data_dir, data_set, data_map_file, input_shape, progress)
    about, samples, client_names = decoded.about, decoded.samples, decoded.train.clients
    owner, is_test, test_source = _split(decoded, test_split, seed)
    public = np.zeros(0, dtype=np.int64)
    if public_draw is not None:
        trained = np.flatnonzero(~is_test & (owner >= 0))
        public = trained[choose(samples.y[trained], public_draw, seed, owner[trained])]
        owner[public] = -1
    train = ClientRows(*group(np.where(is_test, -1, owner), len(client_names)))
    test = ClientRows(*group(np.where(is_test, owner, -1), len(client_names)))
    mean, std = normalisation(data_set, about.shape[0])
    return DataSet(
        name=about.name,
        data_set=data_set,
        generated=about.generated,
        x=samples.x,
        y=samples.y,
        num_classes=about.classes or int(samples.y.max()) + 1,
        client_names=client_names,
        train=train,
        test=test,
        digest=_digest(samples.digest, train, test, public, client_names),
        test_source=test_source,
        test_only_clients=0 if decoded.test is None else len(decoded.test.clients) - len(client_names),
        public_rows=public,
        notes=_notes(decoded, train, test, public, test_source),
        _mean=torch.tensor(mean).view(1, -1, 1, 1),
        _std=torch.tensor(std).view(1, -1, 1, 1),
    )


def _split(decoded: Decoded, test_split: float, seed: int) -> tuple[np.ndarray, np.ndarray, str]:
    """Index of the client of each row (-1: it never trains), int64 [n]; which rows are tests, bool [n]; test_source."""
    train, test = decoded.train, decoded.test
    test_client = np.zeros(0, dtype=np.int32) if test is None else test.client
    strangers = test_client >= len(train.clients)
    owner = np.concatenate([train.client, np.where(strangers, -1, test_client)]).astype(np.int64)
    is_test = np.arange(len(owner)) >= len(train)
    if test is not None and not strangers.all():
        return owner, is_test, TEST_CSV
    is_test[: len(train)] = held_out_mask(train.client, len(train.clients), test_split, seed)
    why = "there is no test.csv" if test is None else "test.csv names no training client"
    return owner, is_test, f"{test_split:g} of each client's samples ({why})"


def _digest(
    samples_digest: str, train: ClientRows, test: ClientRows, public: np.ndarray, client_names: Sequence[str]
) -> str:
    names = [part.numpy() for part in pack_texts(client_names).values()]  # figures by client and traces go by names
    digest = hashlib.sha256(samples_digest.encode())
    for part in (train.rows, train.offsets, test.rows, test.offsets, public, *names):
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()


def _notes(
    decoded: Decoded, train: ClientRows, test: ClientRows, public: np.ndarray, test_source: str
) -> tuple[str, ...]:
    about, y = decoded.about, decoded.samples.y
    class_names = names_in(about.written)
    tables = [decoded.train] if decoded.test is None else [decoded.train, decoded.test]
    label_names = [table.label_names for table in tables]
    file_keys = np.concatenate([table.file_keys for table in tables])
    trained, spent, tested = y[train.rows], y[public], y[test.rows]

    def test_path(index: int) -> str:
        row = int(test.rows[index])
        first = len(decoded.train)
        return decoded.train.paths[row] if row < first else tables[1].paths[row - first]

    return (
        *decoded.samples.notes,
        *contradiction_notes(label_names, class_names),
        *skipped_notes(label_names),
        *shared_note(file_keys[train.rows], file_keys[test.rows], test_path),
        *gaps_note(about, y),
        *spent_note(trained, spent, tested, class_names),
        *(untrained_note(np.append(trained, spent), tested, class_names) if test_source == TEST_CSV else ()),
        *alike_note(tables[-1].clients, "clients"),
    )
