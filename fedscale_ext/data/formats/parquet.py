"""``flwrlabs/femnist`` as parquet files."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.formats.source import OTHER_FORMAT, Sample, Source
from fedscale_ext.data.importing.pictures import PictureReader
from fedscale_ext.data.registry import known


@dataclass
class ParquetSource(Source):
    """``flwrlabs/femnist`` as parquet, see ``importers.import_parquet``."""

    path: Path
    data_set: str
    sides: Sequence[int] | None = None
    kind: str = "parquet"

    def __post_init__(self) -> None:
        self._pictures = PictureReader(known(self.data_set), self.sides)

    def notes(self) -> list[str]:
        """See :class:`source.Source`."""
        return [*super().notes(), *self._pictures.notes()]

    def samples(self) -> Generator[Sample, None, None]:
        """See :class:`Source`."""
        try:
            from pyarrow import ArrowException, parquet, types
        except ImportError as error:
            raise UserError("parquet files are read with pyarrow: install it with `pip install pyarrow`") from error
        files = [self.path] if self.path.is_file() else sorted(self.path.rglob("*.parquet"))
        if not files:
            raise UserError(f"{self.path} holds no .parquet files")
        try:
            opened = [parquet.ParquetFile(file) for file in files]
            for path, file in zip(files, opened, strict=True):
                lacks = {"image", "writer_id", "character"} - set(file.schema_arrow.names)
                if lacks:
                    names = ", ".join(sorted(lacks))
                    raise UserError(f"{path} lacks the column {names} of flwrlabs/femnist; {OTHER_FORMAT}")
            columns = [file.read(columns=["character"]).column("character") for file in opened]
            if all(types.is_integer(column.type) and not column.null_count for column in columns):
                self._outline((column.to_numpy(), None) for column in columns)
            for path, file in zip(files, opened, strict=True):
                row = 0
                for batch in file.iter_batches(batch_size=1024, columns=["image", "writer_id", "character"]):
                    for record in batch.to_pylist():
                        image, where = record["image"], f"row {row} of {path} (counted from 0)"
                        data = image.get("bytes") if isinstance(image, dict) else None
                        label = record["character"]
                        if (
                            not isinstance(data, bytes)
                            or not isinstance(label, int)
                            or record["writer_id"] in (None, "")
                        ):
                            raise UserError(f"{where} lacks the image's bytes, a writer_id or an integer character")
                        pixels = self._pictures.read(data, where)
                        yield Sample(pixels, label, str(record["writer_id"]), None, where)
                        row += 1
        except (ArrowException, OSError, ValueError) as error:  # a ValueError: text that is not UTF-8
            raise UserError(f"{self.path} cannot be read as parquet: {error}") from error
