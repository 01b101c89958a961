"""What a job reached, for Python and notebooks: its summary, tables, pictures and the folder that holds them."""

import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedscale_ext.core.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

    from fedscale_ext.report.job.loading import LoadedJob

Rows = list[dict[str, Any]]
_DPI = 110


class Picture:
    """A plot: a notebook shows it, :meth:`save` writes it, ``figure`` is matplotlib's."""

    def __init__(self, figure: "Figure"):
        self.figure = figure

    def __repr__(self) -> str:
        width, height = self.figure.get_size_inches()
        titles = (axes.get_title() for axes in self.figure.axes)
        title = next(filter(None, titles), "without a title")
        return f"<Picture: {title}, {width:g} x {height:g} inches>"

    def save(self, path: str | Path) -> Path:
        """Write it as PNG, SVG or PDF, as the file's ending says."""
        where = Path(path)
        if where.suffix.lower() not in (".png", ".svg", ".pdf"):
            raise UserError(f"{where} names no kind of picture: end it with .png, .svg or .pdf")
        self.figure.savefig(where, dpi=_DPI)
        return where

    def _repr_png_(self) -> bytes:
        out = io.BytesIO()
        self.figure.savefig(out, format="png", dpi=_DPI)
        return out.getvalue()


class Result(Mapping[str, Any]):
    """A job's results. As a mapping it is its summary, the content of summary.json, with ``log_dir``:
    ``result["accuracy"]["mean"]``. Tables are pandas' where that is installed, else lists of dicts; where a figure
    does not exist they have None (NaN in pandas). A notebook shows the summary."""

    def __init__(self, job: "LoadedJob"):
        self._job = job
        self._summary = {**job.summary, "log_dir": str(job.folder)}

    def __getitem__(self, name: str) -> Any:
        return self._summary[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._summary)

    def __len__(self) -> int:
        return len(self._summary)

    def __repr__(self) -> str:
        mean = self.accuracy
        reached = "not tested" if mean is None else f"client accuracy {mean:.4f}"
        state = f"{'' if self.finished else 'not finished, '}round {self['rounds']}"
        return f"<Result of {self.name}: {self['method']} on {self._job.data}, {reached}, {state}, {self.path}>"

    def _repr_markdown_(self) -> str:
        from fedscale_ext.report.job.tables import markdown

        return markdown(self._summary)

    @property
    def path(self) -> Path:
        """The folder that the job wrote into."""
        return self._job.folder

    @property
    def name(self) -> str:
        """Name of the job, the configuration's job_name."""
        return self._job.name

    @property
    def finished(self) -> bool:
        """Whether the job has ended; of one that has not, the results are those of its rounds so far."""
        return self._job.finished

    @property
    def accuracy(self) -> float | None:
        """Mean over clients of their accuracy in the last test, in [0, 1]; None where nobody was tested."""
        figures = self["accuracy"]
        return None if figures is None else figures["mean"]

    @cached_property
    def rounds(self) -> Any:
        """Table with a row per round.

        Accuracies are in [0, 1], None for a round without a test. Further columns are losses, seconds of the virtual
        clock and of the wall, participants, MACs of training, bytes, and the number of models after the round.
        """
        from fedscale_ext.metrics.job_folder.jsonable import plain
        from fedscale_ext.report.job.series import round_row

        return _table(plain([round_row(record) for record in self._job.records]))

    @cached_property
    def clients(self) -> Any:
        """Table with a row per client.

        The name is the one that the data give the client, None for jobs of earlier versions. Further columns are its
        accuracy in the last test, its balanced accuracy and macro F1 where the job counted classes, its AUC where the
        job has the key ``auc``, the key of its served model, and its samples. ``capacity`` is the MACs per sample that
        its device affords; the speed of the device follows.
        """
        from fedscale_ext.metrics.job_folder.jsonable import plain
        from fedscale_ext.report.job.series import client_rows

        return _table(plain(client_rows(self._job)))

    def classes(self, client: str | None = None) -> Any:
        """Return a table with a row per class, of the job's last test.

        Columns are the class's ``label`` and ``name``, its test ``samples``, the number that was ``predicted`` as it,
        the ``accuracy`` on its samples, and ``f1``; ``auc`` where the job has that key. A class
        without test samples has no accuracy.

        Args:
            client: Name of a client. By default, the test samples of all clients count together.

        Raises:
            UserError: If there is no such client, or the job did not count classes: jobs on text, jobs that have not
                ended, and jobs of earlier versions.

        """
        from fedscale_ext.metrics.job_folder.jsonable import plain
        from fedscale_ext.report.job.series import class_rows

        number = None if client is None else self._job.client_number(client)
        return _table(plain(class_rows(self._job, number)))

    @cached_property
    def lineage(self) -> Any:
        """Table with a row per model: its cost (MACs forward, of a sample) and the number of clients that it serves.

        Methods whose models grow add its ``parent``, the round of its ``birth`` and the ``steps`` that made it.
        """
        from fedscale_ext.report.job.series import model_row

        return _table([model_row(model) for model in self["models"]])

    @cached_property
    def tables(self) -> Mapping[str, Any]:
        """Tables that the method adds, by name: its tiers, its types of devices, its stages."""
        from fedscale_ext.report.job.own_tables import method_tables

        return {name: _table(rows) for name, rows in method_tables(self._summary).items()}

    def predict(self, client: str, inputs: "str | Path | np.ndarray") -> Any:
        """Return a table with a row per sample: its ``name``, the predicted ``label`` and the ``probability``.

        Warnings tell what was changed in the samples, such as their ratio of height to width, and odd pixels.

        Args:
            client: Name of the client whose served model predicts. A model that the client keeps itself is its own.
            inputs: An npz file with an array ``x``, a picture, a folder of pictures, or a data folder; or the array.

        Raises:
            UserError: If the job has not ended, the client or its model is not there, or inputs cannot be read.

        """
        from fedscale_ext.api.predict import COLUMNS, predict

        source = Path(inputs) if isinstance(inputs, str | Path) else inputs
        notes: list[str] = []
        table = _table([vars(each) for each in predict(self._job, client, source, notes.append)], COLUMNS)
        for note in notes:
            warnings.warn(note, stacklevel=2)
        return table

    def plot(self) -> Picture:
        """The job at a glance: accuracy by rounds, time and computation, loss, participants and clients."""
        from fedscale_ext.report.plots.job_picture import draw

        return Picture(draw(self._job.header, self._job.records))

    def plots(self) -> Mapping[str, Picture]:
        """Pictures of what only the job shows, by name: models over time, participants, models by capacity."""
        from fedscale_ext.report.plots.job_plots import plots

        return {name: Picture(figure) for name, (_title, figure) in plots(self._job).items()}

    def report(self, out: str | Path | None = None, by_class: bool = False) -> Path:
        """Write the page, plots and figures of ``fedscale report`` below ``out`` (the job's ``report``); the page.

        ``by_class``: the page has figures of classes, as with ``--by-class``.
        """
        from fedscale_ext.report.page.build import build

        return build([self.path], self.path / "report" if out is None else Path(out), by_class=by_class)[0]


def load(job: str | Path) -> Result:
    """The results of a job, finished or under way, by its log folder or its job_name. UserError for what is neither."""
    from fedscale_ext.driver.naming import find_jobs
    from fedscale_ext.report.job.loading import load_job

    folders, unbegun = find_jobs([str(job)])
    if (number := len(folders) + len(unbegun)) > 1:
        listed = ", ".join(map(str, folders))
        raise UserError(f"{job} is a sweep of {number} jobs; load one of them at a time: {listed}")
    return Result(load_job(folders[0].absolute()))


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> Any:
    """``columns`` are those of a table that may have no rows."""
    if find_spec("pandas") is None:
        return [dict(row) for row in rows]
    import pandas

    return pandas.DataFrame(list(rows), columns=list(columns) or None)
