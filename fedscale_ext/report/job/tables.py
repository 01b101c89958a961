"""A job's summary as a table for the terminal and as summary.md."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedscale_ext.core.errors import enumerated, one_line
from fedscale_ext.data.layout.class_names import class_names
from fedscale_ext.report.job.own_tables import text_tables
from fedscale_ext.util.atomic_files import write_atomic
from fedscale_ext.util.quantities import percent, quantity

Rows = list[tuple[str, str]]
MARKDOWN = "summary.md"
_NAME = 60  # characters of a client's name, or of a class's


def summary_table(summary: Mapping[str, Any]) -> Rows:
    """(name, value) rows of a summary; the first says which data the result is for, and whether it was generated."""
    return [
        data_row(summary),
        ("method", f"{summary['method']}, seed {summary['seed']}"),
        ("population", f"{summary['num_clients']:,} clients, devices {summary['population']}"),
        (
            "rounds",
            str(summary["rounds"]) + (f", stopped: {summary['stopped']}" if summary["stopped"] else ""),
        ),
        *_privacy_rows(summary.get("privacy")),
        *_accuracy_rows(summary),
        *_cost_rows(summary),
        *_client_rows(summary["clients"]),
        *_interruption_rows(summary),
    ]


def data_row(header: Mapping[str, Any]) -> tuple[str, str]:
    """The row that names the data, as GENERATED or real."""
    return "data", data_words([header])[0]


def data_words(headers: Sequence[Mapping[str, Any]]) -> list[str]:
    """The data of jobs in words, each once: as GENERATED or real, and which methods leave public samples unused."""
    alike: dict[tuple[str, bool, int | None], list[Mapping[str, Any]]] = {}
    for header in headers:
        data = header["data"]
        alike.setdefault((data["name"], data["generated"], data.get("public_samples")), []).append(header)
    words = []
    for (name, generated, samples), jobs in alike.items():
        unused = dict.fromkeys(job["method"] for job in jobs if not job["data"].get("public_data_used", True))
        kind = "GENERATED data, not real" if generated else "real"
        words.append(f"{name} ({kind}){_public_words(samples, list(unused))}")
    return words


def _public_words(samples: int | None, unused_by: Sequence[str]) -> str:
    """What public data took from the clients, and which methods do not use them; empty where a job has none, or an
    earlier version ran it."""
    if samples is None:
        return ""
    unused = f", which {enumerated(unused_by)} {'do' if len(unused_by) > 1 else 'does'} not use" if unused_by else ""
    if samples:
        return f", {samples:,} training samples set aside as public data{unused}"
    return unused and f", public_dir{unused}"


def model_table(summary: Mapping[str, Any]) -> list[dict[str, str]]:
    """One row per model: key, family, forward MACs per sample, parameters, size, clients served, lineage."""
    return [
        {
            "model": model["key"],
            "family": model["spec"]["family"],
            "MACs": quantity(model["cost"]["forward_macs"]),
            "parameters": quantity(model["cost"]["parameters"]),
            "size": f"{megabytes(model['cost']['bytes'] / 1e6)} MB",
            "clients served": f"{model['serves']:,}",
            "from": _lineage(model["lineage"]),
        }
        for model in summary["models"]
    ]


def markdown(summary: Mapping[str, Any]) -> str:
    """The summary and its models as Markdown tables."""
    rows = "\n".join(f"| {name} | {_cell(value)} |" for name, value in summary_table(summary))
    text = f"# {summary['job_name']}\n\n| | |\n|---|---|\n{rows}\n"
    if models := model_table(summary):
        head = list(models[0])
        body = "\n".join("| " + " | ".join(map(_cell, model.values())) + " |" for model in models)
        text += f"\n## Models\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}\n{body}\n"
    for name, (titles, cells) in text_tables(summary).items():
        text += f"\n## {name}\n\n| {' | '.join(titles)} |\n|{'---|' * len(titles)}\n"
        text += "".join(f"| {' | '.join(map(_cell, row))} |\n" for row in cells)
    if notices := summary.get("notices"):
        text += "\n## Notices\n\n" + "".join(f"- {_cell(notice)}\n" for notice in notices)
    versions = ", ".join(f"{name} {version}" for name, version in summary["versions"].items())
    return f"{text}\nWritten with {versions}.\n"


def write_markdown(directory: Path, summary: Mapping[str, Any]) -> Path:
    """Write ``directory/summary.md`` atomically."""
    path = directory / MARKDOWN
    write_atomic(path, markdown(summary))
    return path


def seconds(value: float | None) -> str:
    """A duration for people: 12 ms, 8.2 s, 12 min 5 s, 3 h 20 min."""
    if value is None:
        return "–"
    if 0 < value < 0.1:
        return f"{1000 * value:.0f} ms" if value >= 0.01 else f"{1000 * value:.2g} ms"
    if round(value, 1) < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _accuracy_rows(summary: Mapping[str, Any]) -> Rows:
    result, loss = summary["accuracy"], summary["loss"]
    train, test = (_loss(loss[kind]) for kind in ("train", "test"))
    if result is None or not result["tested"]:
        return [("client accuracy", "no client was tested"), ("training loss", train)]
    worst = f"worst {percent(result['worst'])} ({_client(summary, result)}), best {percent(result['best'])}"
    return [
        ("client accuracy", f"{percent(result['mean'])} mean over {result['tested']:,} clients"),
        *_mask_rows(result),
        ("  spread", f"IQR {percent(result['iqr'])}, {worst}"),
        ("  over samples", percent(result["sample_weighted"])),
        *_class_rows(summary),
        *_floor_rows(summary.get("floor")),
        *(
            (f"  {title}", f"{percent(named['accuracy'])} on all clients' samples")
            for title, named in result["named"].items()
        ),
        *_at_the_end(summary, "personalised"),
        *_at_the_end(summary, "before_training"),
        *_at_the_end(summary, "after_training"),
        *_at_the_end(summary, "on_all"),
        ("loss", f"training {train}, test {test} over samples"),
        *_perplexity(summary.get("perplexity")),
    ]


def _mask_rows(result: Mapping[str, Any]) -> Rows:
    """That figures of clients' own tests mask logits, and the mean without; nothing where they do not."""
    if "unmasked" not in result:
        return []
    without = percent(result["unmasked"]["mean"])
    return [
        ("  mask_test", f"masks the classes that a client lacks, in all figures of its own tests; {without} without")
    ]


def _client(summary: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """The client that fares worst, by its name if the job has names, and how many fare as badly."""
    number, names = result["worst_client"], summary["clients"].get("names") or ()
    others = result.get("per_client", []).count(result["worst"]) - 1
    name = one_line(names[number - 1], _NAME) if number and number <= len(names) else number
    return f"client {name}" + (f" and {others:,} more" if others > 0 else "")


def _first(names: Sequence[str]) -> str:
    """The first name, and the number of the others."""
    return one_line(names[0], _NAME) + (f" and {len(names) - 1:,} more" if len(names) > 1 else "")


def _floor_rows(floor: Mapping[str, Any] | None) -> Rows:
    """What clients reach without a model; nothing where an earlier version ran the job."""
    rows: Rows = []
    for name, how in (
        ("majority", "by each client's most frequent training label"),
        ("most_frequent", "by the most frequent training label of all clients"),
    ):
        figures = (floor or {}).get(name)
        if figures and figures["mean"] is not None:
            rows.append(("  without a model", f"{percent(figures['mean'])} {how}"))
    return rows


def _class_rows(summary: Mapping[str, Any]) -> Rows:
    """The figures of classes; nothing where the job has none (``absent``), or an earlier version ran it."""
    figures = summary.get("by_class") or {}
    if "classes" not in figures:
        return []
    balanced, f1 = (percent(figures[name]["mean"]) for name in ("balanced_accuracy", "macro_f1"))
    accuracies = figures["classes"]["accuracy"]
    names = class_names(summary["config"], len(accuracies))
    known = [(value, name) for value, name in zip(accuracies, names, strict=True) if value is not None]
    worst, best = (
        f"{percent(value)} ({_first([name for each, name in known if each == value])})"
        for value in (min(known)[0], max(known)[0])
    )
    return [("  by class", f"balanced accuracy {balanced}, macro F1 {f1}, means over clients"),
            *_auc_rows(figures.get("auc")),
            ("  classes", f"worst {worst}, best {best}")]  # fmt: skip


def _auc_rows(figures: Mapping[str, Any] | None) -> Rows:
    """AUC; nothing where the job did not measure it."""
    if figures is None:
        return []
    if figures["pooled"] is None:
        return [("  AUC", "none: the test samples are all of one class")]
    mean = f"{percent(figures['mean'])} mean over {figures['clients']:,} clients with two classes or more, "
    return [("  AUC", f"{mean if figures['clients'] else ''}{percent(figures['pooled'])} over all samples together, "
                      f"to within {percent(figures['pooled_error'])}")]  # fmt: skip


def _loss(value: float | str | None) -> str:
    """A loss; of a model that diverged it is None (not a number) or "inf"."""
    return "–" if value is None else f"{float(value):.4f}"


def _perplexity(figures: Mapping[str, Any] | None) -> Rows:
    """Of text, counted in both ways."""
    if not figures or figures["pooled"] is None or figures["clients"] is None:
        return []
    return [("perplexity", f"{figures['pooled']:.3f}, mean over clients {figures['clients']:.3f}")]


def _at_the_end(summary: Mapping[str, Any], name: str) -> Rows:
    """What clients reach that fine-tune what they are served, around local training, or on everybody's samples; nothing
    where that was not asked for."""
    tuned = summary.get(name)
    if not tuned or not tuned["tested"]:
        return []
    worst = f"worst {percent(tuned['worst'])} ({_client(summary, tuned)})"
    return [
        (name.replace("_", " "), f"{percent(tuned['mean'])} mean over {tuned['tested']:,} clients"),
        ("  spread", f"IQR {percent(tuned['iqr'])}, {worst}, best {percent(tuned['best'])}"),
    ]


def _privacy_rows(privacy: Mapping[str, Any] | None) -> Rows:
    if privacy is None:
        return []
    noise = "noise from the seed: not against those who know it" if privacy["noise"] == "seeded" else "secret noise"
    return [
        ("privacy", f"epsilon {privacy['epsilon']:.3g} at delta {privacy['delta']:g} for a client's data, {noise}"),
        ("  assumes", privacy["assumes"]),
        ("  not covered", privacy["unprotected"]),
    ]


def megabytes(value: float) -> str:
    """Write MB, also those of methods that send only kilobytes."""
    if value >= 0.01:
        return f"{value:,.1f}" if value >= 1 else f"{value:.3f}"
    return np.format_float_positional(value, precision=2, fractional=False, trim="-")


def _cost_rows(summary: Mapping[str, Any]) -> Rows:
    cost, time = summary["cost"], summary["time"]
    mean = "–" if cost["mean_model_mb"] is None else f"{megabytes(cost['mean_model_mb'])} MB"
    completion = seconds(time["round_completion_mean_s"])
    if time["round_completion_std_s"] is not None:
        completion += f" ± {seconds(time['round_completion_std_s'])}"
    return [
        ("computation", f"{quantity(cost['training_macs'])}MACs forward and backward "
                        f"({quantity(cost['forward_macs'])}MACs forward)"),
        ("network", f"{megabytes(cost['network_total_mb'])} MB, {megabytes(cost['network_per_round_mb'])} MB a round"),
        ("models", f"{_model_count(summary)} in {megabytes(cost['storage_suite_mb'])} MB, a client is served {mean}"),
        *_beside_models(cost.get("server_bytes", 0)),
        ("virtual time", f"{seconds(time['virtual_s'])}; a client's round takes {completion}"),
        ("wall time", seconds(time["wall_s"])),
    ]  # fmt: skip


def _model_count(summary: Mapping[str, Any]) -> str:
    """How many models there are; those that clients keep are none where an earlier version ran the job."""
    client_models = summary["cost"].get("client_models", 0)
    return (
        f"{len(summary['models'])} and {client_models:,} that clients keep"
        if client_models
        else str(len(summary["models"]))
    )


def _beside_models(server_bytes: int) -> Rows:
    """What the server keeps beside models; nothing where that is nothing."""
    return [("  beside them", f"{megabytes(server_bytes / 1e6)} MB that only the server keeps")] if server_bytes else []


def _client_rows(clients: Mapping[str, Any]) -> Rows:
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(clients["failed"].items()))
    failed = f"{clients['failed_total']:,} failed" + (f" ({reasons})" if reasons else "")
    late, lost = (clients.get(f"{which}_download_mb") for which in ("late", "lost"))  # an earlier release wrote neither
    uncounted = f" (whose downloads, {megabytes(late)} MB, are not in network)" if late else ""
    counted = " (a client that cannot be selected counts in each round that selects" if clients["offline"] else ""
    counted += f"; downloads of those lost in a round, {megabytes(lost)} MB, are not in network" if lost else ""
    counted += ")" if counted else ""
    return [
        ("took part", f"{clients['took_part']:,} of {clients['total']:,} clients, {clients['participations']:,} times"),
        ("left out", f"{failed}, {clients['stragglers']:,} stragglers{uncounted}, "
                     f"{clients['offline']:,} times offline{counted}, "
                     f"{clients['untested']:,} untested (no test samples, or the test failed)"),
    ]  # fmt: skip


def _interruption_rows(summary: Mapping[str, Any]) -> Rows:
    """What did not go undisturbed; nothing where all did."""
    rows = []
    if restarts := summary["restarts"]:
        rows.append(("restarts", ", ".join(f"{process}: {count}" for process, count in restarts.items())))
    if resumed := summary["resumed"]:
        after = ", ".join(str(one["after_round"]) for one in resumed)
        changed = "; by then the code had changed" if any(one["code_changed"] for one in resumed) else ""
        rows.append(("resumed", f"after round {after}{changed}"))
    return rows


def _lineage(value: Any) -> str:
    if value is None:
        return "–"
    if not isinstance(value, dict):
        return str(value)
    return ", ".join(f"{key} {_words(item)}" for key, item in value.items() if item not in (None, []))


def _words(value: Any) -> str:
    return " and ".join(map(str, value)) if isinstance(value, list) else str(value)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
