"""``fedscale methods``: what can train; a method's hyperparameters; models that a job made; a new method."""

import inspect
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fedscale_ext.cli import complete
from fedscale_ext.cli.command_group import CommandGroup
from fedscale_ext.cli.new_method import Kind, write_skeleton
from fedscale_ext.core.errors import UserError

app = typer.Typer(cls=CommandGroup)


@app.callback(invoke_without_command=True)
def methods(context: typer.Context) -> None:
    """List the methods that are installed.

    A method is chosen by `method: NAME` in a configuration; NAME.KEY sets its hyperparameter.

    Example: fedscale driver start fedtrans --on digits --set fedtrans.beta=0.01
    """
    if context.invoked_subcommand is None:
        list_methods()


@app.command()
def options(
    method: Annotated[
        str, typer.Argument(metavar="METHOD", help="One of `fedscale methods`.", autocompletion=complete.methods)
    ],
) -> None:
    """Show a method's hyperparameters: defaults, values and meanings.

    Example: fedscale methods options fedtrans
    """
    from fedscale_ext.config.meanings import hyperparameters, introduction
    from fedscale_ext.config.methods import method_class
    from fedscale_ext.driver.tables import console, print_table

    chosen: Any = method_class(method)
    params = chosen.Params
    out = console()
    rows = [[f"{method}.{key.name}", key.default, key.values, key.meaning] for key in hyperparameters(method, params)]
    if rows:
        print_table(out, ["name", "default", "values", "meaning"], rows, sentences=True)
    else:
        out.print(f"{method} has no hyperparameters of its own", highlight=False)
    if about := introduction(params):
        out.print()
        out.print(about, markup=False, highlight=False, soft_wrap=not out.is_terminal)


@app.command()
def show(
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB", help="The configuration's job_name, or a job's log folder.", autocompletion=complete.jobs
        ),
    ],
) -> None:
    """Show the models of a finished job: parent, transformation, round, MACs, parameters, clients served.

    Example: fedscale methods show fedtrans_digits
    """
    from fedscale_ext.config.methods import method_names
    from fedscale_ext.driver import jobs
    from fedscale_ext.driver.progress import counted
    from fedscale_ext.driver.tables import console, print_table
    from fedscale_ext.metrics.summary import SUMMARY
    from fedscale_ext.report.job.end_files import GROWTH_PLOT
    from fedscale_ext.report.job.lineage import TITLES, lineage_rows
    from fedscale_ext.util.reading import MEGA, read_json

    is_folder = Path(job, SUMMARY).is_file()
    if not is_folder and job in method_names() and jobs.read(job) is None:
        raise UserError(f"{job!r} is a method, not a job: `fedscale methods options {job}` shows its hyperparameters")
    log_dir = Path(job) if is_folder else jobs.find(job).log_dir
    try:
        summary = read_json(log_dir / SUMMARY, 1024 * MEGA)
        rows = lineage_rows(summary)
        print(f"{summary['method']}, {counted(summary['rounds'], 'round')}, {counted(len(rows), 'model')}")
    except OSError as error:
        raise UserError(
            f"job {job} has no {SUMMARY} in {log_dir} ({error.strerror}): it is written when a job ends"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{log_dir / SUMMARY} is damaged, or of another version") from None
    print_table(console(), TITLES, rows)
    if (log_dir / GROWTH_PLOT).is_file():
        print(f"picture: {log_dir / GROWTH_PLOT}")
    if len(rows) > 1:
        print(_settings_of_largest(log_dir, summary))


def _settings_of_largest(log_dir: Path, summary: dict[str, Any]) -> str:
    """Say by which settings another job trains the largest model, if possible on devices that afford the same."""
    from fedscale_ext.metrics.job_folder.model_files import model_file

    largest = max(summary["models"], key=lambda model: model["cost"]["forward_macs"])
    spec, weakest = model_file(log_dir, largest["key"]).with_suffix(".json"), _weakest_model(log_dir, summary)
    settings = ["--set", f"model={spec}"]
    if weakest is None:
        return f"train its largest model elsewhere: {shlex.join(settings)}"
    settings += ["--set", f"capacity_model={weakest}"]
    return f"train its largest model elsewhere, on the same devices: {shlex.join(settings)}"


def _weakest_model(log_dir: Path, summary: dict[str, Any]) -> str | None:
    """The ``capacity_model`` that gives another job's devices the same capacities; None if no model is known to.

    Without that key, it is the model that the weakest device affords. There is none with a ``deadline_s``, nor for a
    method whose clients exchange no models, as its deadline counts what they send.
    """
    from fedscale_ext.config.methods import method_class, method_names
    from fedscale_ext.report.job.loading import load_job
    from fedscale_ext.server.method_base.method_traits import MethodTraits

    config, method = summary["config"], summary["method"]
    if config.get("capacity_model"):
        return str(config["capacity_model"])
    affords = load_job(log_dir).affords
    if affords is None or method not in method_names():
        return None
    traits: type[MethodTraits] = method_class(method)
    if not traits.exchanges_models:
        return None
    fits = [model["key"] for model in summary["models"] if model["cost"]["forward_macs"] == affords[0]]
    return str(log_dir / "models" / f"{fits[0]}.json") if fits else None


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Small letters, digits and underscores.")],
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="DIR", help="New or empty folder to write.", show_default="NAME"),
    ] = None,
    kind: Annotated[
        Kind,
        typer.Option(
            help="Kind of the method: one model for all; parts of it by capacity; personal layers; or personal models "
            "and public samples."
        ),
    ] = "averaging",
) -> None:
    """Write a small method to start from: a package with a class, tests that pass and a job that runs.

    Example: fedscale methods new my_method --kind submodel
    """
    folder = out or Path(name)
    for file in write_skeleton(name, folder, kind):
        print(folder / file)
    print(
        f"\nnext:\n  cd {shlex.quote(str(folder))}\n  pip install -e '.[test]'\n"
        "  python -m pytest\n  fedscale dataset synthesize digits --writers 20\n"
        f"  fedscale driver start {name}.yml"
    )


def list_methods() -> None:
    """Print every installed method, a line each, by family."""
    from fedscale_ext.config.methods import method_class, method_names
    from fedscale_ext.driver.tables import console, print_table
    from fedscale_ext.server.method_base.method_traits import About

    rows = []
    for name in method_names():
        try:
            method: Any = method_class(name)
        except UserError as error:  # a broken package must not hide the other methods
            print(f"note: {error}", file=sys.stderr)
            continue
        about = vars(method).get("about", About())  # not that of a base, which is another method
        what = (inspect.getdoc(method) or "").split("\n")[0]
        rows.append([name, about.family or "–", str(about.year or "–"), about.needs or "–", what])
    rows.sort(key=lambda row: (row[1] == "–", row[1], row[0]))
    out = console()
    print_table(out, ["method", "family", "year", "needs", "what it is"], rows)
    if out.is_terminal:
        out.print("\nhyperparameters of one: fedscale methods options METHOD", highlight=False)
