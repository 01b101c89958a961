"""Speech Commands as it is published: wav files by word, whose names tell the speaker."""

import itertools
import re
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.streams import stream
from fedscale_ext.data.decoding.audio import CLIP, read_wav
from fedscale_ext.data.formats.source import Sample, Source
from fedscale_ext.data.registry import SILENCE, SPEECH_WORDS, UNKNOWN, KnownDataSet, known
from fedscale_ext.util.reading import MEGA, read_json

NOISE = "_background_noise_"
_MAX_MAP = 64 * MEGA  # bytes of a client map
_NAME = re.compile(r"(?:([a-z]+)_)?([0-9a-f]{6,10})_nohash_(\d+)(?:\.wav)+")


class Clip(NamedTuple):
    """A wav file: its label, its speaker ("": nobody's), and where a second of it begins (None: it is one clip)."""

    path: Path
    label: int
    client: str
    begin: int | None = None


@dataclass
class SpeechSource(Source):
    """The unpacked archive ``word/speaker_nohash_n.wav``, or a folder of ``word_speaker_nohash_n.wav`` as FedScale
    names them; see ``importers.import_speech``."""

    path: Path
    data_set: str
    client_map: Path | None
    seed: int
    kind: str = "Speech Commands"

    def inputs(self) -> list[Path]:
        """See :class:`source.Source`."""
        return [self.path] if self.client_map is None else [self.path, self.client_map]

    def samples(self) -> Generator[Sample, None, None]:
        """See :class:`source.Source`; clips come by client."""
        entry = known(self.data_set)
        if entry is None or not (entry.values and SPEECH_WORDS[0] in entry.label_names):
            raise UserError(f"{self.path} holds wav files: import them as speech or speech12")
        clips = [clip for path in self._files() for clip in self._clips(path, entry)]
        if self._map is not None:
            self.absent = max(0, len(self._map) - sum(bool(clip.client) for clip in clips))
        if entry.silence:
            clips = self._with_silence(clips, entry)
        elif entry.others:
            clips = self._twelve(clips, entry)
        if not clips:
            raise UserError(f"no clip of {self.path} is named in {self.client_map}: is it the map of this data?")
        self._outline([([clip.label for clip in clips], None)])
        for clip in sorted(clips, key=lambda clip: (_by_number(clip.client), clip.path, clip.begin or 0)):
            samples = read_wav(clip.path)
            if clip.begin is not None:
                samples = samples[clip.begin : clip.begin + CLIP]
            yield Sample(samples, clip.label, clip.client, None, str(clip.path))

    def _files(self) -> list[Path]:
        files = sorted(path for pattern in ("*.wav", "*/*.wav") for path in self.path.glob(pattern) if path.is_file())
        files = [path for path in files if path.parent.name != NOISE]
        if not files:
            raise UserError(f"{self.path} holds no clips as word/speaker_nohash_n.wav or word_speaker_nohash_n.wav")
        self._map: dict[str, int] | None = None
        if self.client_map is not None:
            self._map = _read_map(self.client_map)
        return files

    def _clips(self, path: Path, entry: KnownDataSet) -> Iterator[Clip]:
        """The clip of a file; none where the client map does not name it (counted in ``left_out``)."""
        if path.parent.name == SILENCE:
            if entry.others:
                yield Clip(path, _label(entry, SILENCE), "")
            return
        match = _NAME.fullmatch(path.name)
        word = (match and match[1]) or path.parent.name
        label = entry.label(word) if word in SPEECH_WORDS else None
        if match is None or label is None:
            raise UserError(f"{path} is no clip of Speech Commands (word/speaker_nohash_n.wav, one of its 35 words)")
        client = match[2]
        if self._map is not None:
            index = self._map.get(f"{word}_{client}_nohash_{match[3]}.wav")
            if index is None:
                self.left_out += 1
                return
            client = str(index)
        yield Clip(path, label, client)

    def _twelve(self, clips: list[Clip], entry: KnownDataSet) -> list[Clip]:
        """As in the twelve-word task: as many unknown words, and seconds of silence, as a word has clips on average.

        Unknown ones are drawn from all other words. Silence is nobody's: it is dealt to the clients at random.
        """
        silence, unknown = _label(entry, SILENCE), _label(entry, UNKNOWN)
        rng = stream(self.seed, "speech", "unknown and silence")
        counts = Counter(clip.label for clip in clips if clip.label not in (silence, unknown))
        num_per_word = max(1, round(sum(counts.values()) / (len(entry.label_names) - 2)))
        chosen = [clip for clip in clips if clip.label not in (silence, unknown)]
        others = [clip for clip in clips if clip.label == unknown]
        chosen += [others[row] for row in rng.permutation(len(others))[:num_per_word]]
        quiet = [clip for clip in clips if clip.label == silence] or list(self._noise(silence, num_per_word, rng))
        clients = sorted({clip.client for clip in chosen})
        if clients:
            chosen += [clip._replace(client=clients[int(rng.integers(len(clients)))]) for clip in quiet]
        return chosen

    def _with_silence(self, clips: list[Clip], entry: KnownDataSet) -> list[Clip]:
        """As FedorAS's public code: a share of each client's clips is added as seconds of silence, rounded down."""
        silence = _label(entry, SILENCE)
        rng = stream(self.seed, "speech", "silence of clients")
        chosen = [clip for clip in clips if clip.client]
        counts = Counter(clip.client for clip in chosen)
        num_silent = {client: int(entry.silence * count) for client, count in counts.items()}
        silent_clips = [clip for clip in clips if clip.label == silence and not clip.client]
        total = sum(num_silent.values())
        if silent_clips:
            quiet = silent_clips * -(-total // len(silent_clips))
        else:
            quiet = list(self._noise(silence, total, rng))
        order = iter([quiet[index] for index in rng.permutation(len(quiet))])
        for client in sorted(num_silent):
            chosen += [clip._replace(client=client) for clip in itertools.islice(order, num_silent[client])]
        return chosen

    def _noise(self, label: int, count: int, rng: np.random.Generator) -> Iterator[Clip]:
        """Seconds of the background noise, from anywhere in its files; none where there are none."""
        files = [(path, len(read_wav(path))) for path in sorted((self.path / NOISE).glob("*.wav"))]
        files = [(path, length) for path, length in files if length >= CLIP]
        for _ in range(count if files else 0):
            path, length = files[int(rng.integers(len(files)))]
            yield Clip(path, label, "", int(rng.integers(length - CLIP + 1)))


def has_clips(folder: Path) -> bool:
    """Whether wav files lie in a folder or in those in it."""
    return any(next(folder.glob(pattern), None) for pattern in ("*.wav", "*/*.wav"))


def _label(entry: KnownDataSet, name: str) -> int:
    return entry.label_names.index(name)


def _by_number(client: str) -> tuple[int, int | str]:
    return (0, int(client)) if client.isdecimal() else (1, client)


def _read_map(path: Path) -> dict[str, int]:
    """FedScale's ``{wav name: client's number}``."""
    try:
        content = read_json(path, _MAX_MAP)
    except (OSError, ValueError) as error:
        raise UserError(f"the client map {path} cannot be read: {error}") from error
    if not isinstance(content, dict) or not all(type(index) is int and index >= 0 for index in content.values()):
        raise UserError(f"the client map {path} must be JSON as {{wav name: client's number}}")
    return content
