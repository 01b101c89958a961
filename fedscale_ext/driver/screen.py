"""Where progress is shown: a picture that changes in place in a terminal or a notebook, and lines everywhere else."""

import sys
from collections.abc import Callable
from types import TracebackType

from rich.console import Console, RenderableType
from rich.live import Live


class Screen:
    """Writes lines and notices; within ``with`` also the picture that ``picture`` draws, where one can change.

    Progress and results go to ``out``, notices and errors to ``err``.
    """

    def __init__(self, out: Console, err: Console, per_second: int):
        self.out = out
        self.err = err
        self._per_second = per_second
        self._live: Live | _Cell | None = None

    def picture(self) -> RenderableType:
        """What a person sees now."""
        raise NotImplementedError

    def __enter__(self) -> "Screen":
        if in_notebook() and not self.out.quiet:
            self._live = _Cell(self.picture)
        elif self.out.is_terminal and not self.out.is_dumb_terminal:
            self._live = Live(
                get_renderable=self.picture, console=self.out, refresh_per_second=self._per_second, transient=True
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()
            self._live = None

    def refresh(self) -> None:
        """Draw anew what nobody else does: a terminal's picture is drawn several times a second."""
        if isinstance(self._live, _Cell):
            self._live.show()

    def line(self, text: str) -> None:
        """Something that happened, to stay."""
        self.out.print(text, markup=False, highlight=False, soft_wrap=True)

    def aside(self, text: str) -> None:
        """Markup beside the progress, such as a notice."""
        # while the picture is live, the console that it is on must be the one that writes
        console = self.out if self._live else self.err
        console.print(text, highlight=False, soft_wrap=True)


class _Cell:
    """A picture within a notebook cell's output, as text that is replaced."""

    def __init__(self, picture: Callable[[], RenderableType]):
        from IPython.display import display

        self._picture = picture
        self._handle = display(self._bundle(), raw=True, display_id=True)

    def _bundle(self) -> dict[str, str]:
        console = Console(width=80, color_system=None, force_terminal=False, force_jupyter=False)
        with console.capture() as drawn:
            console.print(self._picture())
        return {"text/plain": drawn.get().rstrip()}

    def show(self) -> None:
        self._handle.update(self._bundle(), raw=True)

    def stop(self) -> None:
        self._handle.update({"text/plain": ""}, raw=True)


def in_notebook() -> bool:
    """Tell whether this code runs in the cell of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and hasattr(shell, "kernel")
