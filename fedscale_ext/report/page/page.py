"""The report as one HTML page that needs nothing beside it: no network, no script."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from fedscale_ext.report.compare.arm_labels import settings_table
from fedscale_ext.report.compare.arms import Arm, shown
from fedscale_ext.report.compare.cautions import cautions
from fedscale_ext.report.compare.classes import NO_CLASSES, NOTE, class_tables
from fedscale_ext.report.compare.comparison_table import Cell, TableRow, has_papers, table_notes
from fedscale_ext.report.job.lineage import TITLES, lineage_rows
from fedscale_ext.report.job.loading import LoadedJob
from fedscale_ext.report.job.own_tables import text_tables
from fedscale_ext.report.job.served_models import TITLES as SERVED
from fedscale_ext.report.job.served_models import served_model_rows, untrained_note
from fedscale_ext.report.job.tables import data_row, data_words, summary_table
from fedscale_ext.report.page.notices import grouped
from fedscale_ext.report.plots.figure_files import inline, style_variables
from fedscale_ext.report.plots.panels import MODELS
from fedscale_ext.util.package import VERSION

_CAPTIONS = {
    **dict.fromkeys(
        ("accuracy_rounds", "accuracy_time", "accuracy_macs"),
        "Mean over clients; with several seeds their mean, and a band of one standard deviation. A seed that ended "
        "earlier keeps its last accuracy.",
    ),
    "clients_box": "Box: middle half of the clients; bar: median; diamond: mean; line: 5th to 95th percentile; "
    "points: worst and best. All seeds' clients together.",
    "clients_cdf": "The further right and down a line runs, the better clients fare.",
    "devices": "Clients by the MACs per sample that their device affords: equal devices together, where capacities "
    "are many in quarters of the clients.",
    "models": "Each line begins when the model was made; beside it, what made it from the one before.",
    "types": "Mean over a type's devices, each on its own test samples.",
    "assignment": "What clients are served, from the devices that afford least to those that afford most.",
}

_ACCURACY = {"accuracy_rounds": "by round", "accuracy_time": "by virtual time", "accuracy_macs": "by computation"}
"""The plots of accuracy that share one place of the page, with the names of their buttons."""


@dataclass(frozen=True)
class Plot:
    """A drawing of the page: ``name`` is its file's, ``svg`` its text."""

    name: str
    title: str
    svg: str
    wide: bool = False


def page(
    title: str, arms: Sequence[Arm], rows: Sequence[TableRow], compared: Sequence[Plot],
    job_plots: Mapping[str, Sequence[Plot]], left_out: str = "", by_class: bool = False,
) -> str:  # fmt: skip
    """The page of a comparison.

    ``job_plots`` maps a job's name to its plots; ``left_out`` says which jobs are missing. ``by_class``: ``rows`` have
    the figures of classes, and a section shows each class.
    """
    css = files("fedscale_ext.report.page").joinpath("report.css").read_text(encoding="utf-8")
    jobs = [job for arm in arms for job in arm.every_job]
    sections = [
        ("figures", "Figures", _table(arms, rows, by_class)),
        ("accuracy", "Accuracy", _switch([plot for plot in compared if plot.name in _ACCURACY])),
        ("clients", "Clients", _clients(compared, jobs)),
        ("classes", "Classes", _classes(arms) if by_class else ""),
        ("cost", "Cost", _plots([plot for plot in compared if plot.name.startswith("cost")])),
        ("settings", "Settings that differ", _settings(arms)),
        ("notices", "Notices", _notices(jobs)),
        ("jobs", "Each job", "".join(_job(job, job_plots[job.name], len(jobs) == 1) for job in jobs)),
    ]
    shown = [section for section in sections if section[2]]
    body = "".join(f'<section id="{key}"><h2>{head}</h2>{text}</section>' for key, head, text in shown)
    links = "".join(f'<a href="#{key}">{head}</a>' for key, head, _ in shown)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style_variables()}{css}</style></head><body><main>"
        f"<h1>{escape(title)}</h1>{_head(arms, left_out)}<nav>{links}</nav>{body}"
        f'<p class="quiet">Made by fedscale_ext {escape(VERSION)}.</p></main></body></html>\n'
    )


def _head(arms: Sequence[Arm], left_out: str) -> str:
    jobs = [job for arm in arms for job in arm.every_job]
    data = data_words([job.header for job in jobs])
    lines = [f'<p class="quiet">Data: {escape("; ".join(data))}</p>']
    generated = [job.header["data"]["generated"] for job in jobs]
    if any(generated):
        which = "These results are" if all(generated) else "Some of these results are"
        lines.append(f'<p class="warning">{which} for GENERATED data: they say nothing of real ones.</p>')
    lines += [f'<p class="warning">{escape(sentence)}</p>' for sentence in (left_out, *cautions(arms)) if sentence]
    return "".join(lines)


def _table(arms: Sequence[Arm], rows: Sequence[TableRow], by_class: bool) -> str:
    several = len({arm.data for arm in arms}) > 1
    figures = shown(arms, by_class)
    extra = ["seeds", *(["data"] if several else [])]
    head = "".join(f"<th scope=col>{escape(title)}</th>" for title in ["", *extra, *(f.title for f in figures)])
    body = []
    for row in rows:
        mark = "" if row.index is None else f'<span class="key" style="background:{_colour(row.index)}"></span>'
        state = "".join(f' <span class="tag">{escape(word)}</span>' for word in row.marks)
        state += f' <span class="spread">({escape(row.state)})</span>' if row.state else ""
        cells = "".join(f"<td>{escape(text)}</td>" for text in [row.seeds, *([row.data] if several else [])])
        cells += "".join(map(_cell, row.cells))
        kind = f' class="{row.kind}"' if row.index is None else ""
        body.append(f"<tr{kind}><th scope=row>{mark}{_name(row.label)}{state}</th>{cells}</tr>")
    notes = "; ".join(f"{figure.title}: {figure.note}" for figure in figures if figure.note)
    text = " ".join([
        "Mean ± standard deviation over seeds; the best of each column is bold and green.", *table_notes(rows)
    ])  # fmt: skip
    if has_papers(rows):
        text += (" A paper may not say what its cost, storage and network count; they stand beside ours that come "
                 "closest, and ratios compare, not values. Papers' jobs are of their own size.")  # fmt: skip
    return (
        f'<div class="scroll">{_plain_table(head, body)}</div><p class="quiet">{escape(text)}</p>'
        f'<details class="quiet"><summary>What the columns are</summary>{escape(notes)}</details>'
    )


def _name(text: str) -> str:
    """A name that a narrow column may break where its words end: browsers see one word in what has underscores."""
    return re.sub(r"(?<=[_/])(?=\w)", "<wbr>", escape(text))


def _colour(index: int) -> str:
    return f"var(--series-{index % len(MODELS)})"


def _cell(cell: Cell) -> str:
    value = f'<span class="best">{escape(cell.value)}<span class="sr"> (best)</span></span>' if cell.best else (
        escape(cell.value)
    )  # fmt: skip
    spread = f' <span class="spread">{escape(cell.spread)}</span>' if cell.spread else ""
    return f"<td>{value}{spread}</td>"


def _plain_table(head: str, body: Sequence[str]) -> str:
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _plots(plots: Sequence[Plot]) -> str:
    return f'<div class="plots">{"".join(map(_plot, plots))}</div>' if plots else ""


def _switch(plots: Sequence[Plot]) -> str:
    """One plot at a time, chosen by buttons: radio inputs, as the page has no script. Printed, all plots show."""
    if len(plots) < 2:
        return _plots(plots)
    inputs = "".join(
        f'<input type="radio" name="accuracy" id="show-{plot.name}"{" checked" if plot is plots[0] else ""}>'
        f'<label for="show-{plot.name}">{_ACCURACY[plot.name]}</label>'
        for plot in plots
    )
    return f'<div class="switch">{inputs}{"".join(map(_plot, plots))}</div>'


def _clients(compared: Sequence[Plot], jobs: Sequence[LoadedJob]) -> str:
    """The plots about clients, and which jobs cannot be in that of devices."""
    plots = _plots([plot for plot in compared if plot.name.startswith(("clients", "devices"))])
    unknown = [job.name for job in jobs if job.clients is None]
    why = f"{', '.join(unknown)}: what devices afford was not recorded by the version that ran this, so there is no " \
          "picture by device." if unknown else ""  # fmt: skip
    return plots + (f'<p class="quiet">{escape(why)}</p>' if why else "")


def _classes(arms: Sequence[Arm]) -> str:
    """A table of classes for each data set; where no job has any, why."""
    tables = class_tables(arms)
    if not tables:
        return f'<p class="quiet">{escape(NO_CLASSES)}</p>'
    heads = [f"<h4>{escape(data)}</h4>" if len(tables) > 1 else "" for data, _, _ in tables]
    text = "".join(head + _table_of(titles, rows) for head, (_, titles, rows) in zip(heads, tables, strict=True))
    return f'{text}<p class="quiet">{escape(NOTE)}</p>'


def _plot(plot: Plot) -> str:
    kind = plot.name.rpartition("/")[2]
    caption = f"<figcaption>{escape(_CAPTIONS[kind])}</figcaption>" if kind in _CAPTIONS else ""
    picture = inline(plot.svg, plot.name.replace("/", "-"), escape(plot.title, quote=True))
    return f"<figure{' class=wide' if plot.wide else ''}>{picture}{caption}</figure>"


def _settings(arms: Sequence[Arm]) -> str:
    settings = settings_table(arms)
    if not settings:
        return ""
    head = "".join(f"<th scope=col>{_name(text)}</th>" for text in ["", *(arm.label for arm in arms)])
    body = [
        f"<tr><th scope=row>{_name(key)}</th>{''.join(f'<td>{escape(value)}</td>' for value in values)}</tr>"
        for key, values in settings.items()
    ]
    return f'<div class="scroll">{_plain_table(head, body)}</div>'


def _notices(jobs: Sequence[LoadedJob]) -> str:
    """What the jobs told whoever watched them; nothing where earlier versions ran them."""
    notices = grouped({job.name: job.notices for job in jobs})
    names = (f' <span class="spread">({escape(names)})</span>' if len(jobs) > 1 else "" for _, names in notices)
    items = "".join(f"<li>{escape(sentence)}{who}</li>" for (sentence, _), who in zip(notices, names, strict=True))
    return f"<ul>{items}</ul>" if items else ""


def _job(job: LoadedJob, plots: Sequence[Plot], opened: bool) -> str:
    rows = summary_table(job.summary) if job.finished else [data_row(job.header)]
    facts = [f'<tr><th scope=row>{escape(name)}</th><td class="text">{escape(value)}</td></tr>' for name, value in rows]
    tables = _table_of(TITLES, lineage_rows(job.summary)) + _table_of(SERVED, served_model_rows(job))
    note = untrained_note(job)
    tables += f'<p class="quiet">{escape(note)}</p>' if note else ""
    for name, (titles, cells) in text_tables(job.summary).items():
        tables += f"<h4>{escape(name)}</h4>{_table_of(titles, cells)}"
    return (
        f"<details{' open' if opened else ''}><summary><h3>{escape(job.name)}</h3></summary>"
        f'<div class="scroll"><table><tbody>{"".join(facts)}</tbody></table></div>{tables}{_plots(plots)}</details>'
    )


def _table_of(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with a row per thing, such as a model; nothing for none."""
    head = "".join(f"<th scope=col>{escape(title)}</th>" for title in titles)
    body = [f"<tr><th scope=row>{_name(row[0])}</th>{''.join(f'<td>{escape(cell)}</td>' for cell in row[1:])}</tr>"
            for row in rows]  # fmt: skip
    return f'<div class="scroll">{_plain_table(head, body)}</div>' if rows else ""
