"""What the daemon counts and measures, and the text in which it tells (Prometheus text format 0.0.4).

Counters begin at zero with each daemon, which is what collectors expect of one; what can be had from the runs
themselves (`onward_runs`, `onward_questions_open`) is a gauge, and right at once after a restart.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

MOST_SERIES = 500
OTHER = "other"

_WAITS_S = (10.0, 60.0, 300.0, 1800.0, 3600.0, 14400.0, 43200.0, 86400.0, 604800.0)
_SHORT_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """One name. `buckets` only for a histogram, in the unit of its name."""

    name: str
    kind: str
    told: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("onward_build_info", "gauge", "The version of the daemon; always 1.", ("version",)),
        Metric("onward_runs", "gauge", "Runs by status.", ("status",)),
        Metric("onward_questions_open", "gauge", "Questions that wait for a human."),
        Metric("onward_configuration_ok", "gauge", "1, or 0 while a file of the configuration is wrong."),
        Metric("onward_recovery_seconds", "gauge", "From the start of the daemon until every run was looked at."),
        Metric("onward_run_revivals_total", "counter", "Interrupted runs that went on, since the start.", ("cause",)),
        Metric("onward_runs_quarantined_total", "counter", "Runs that were quarantined since the start."),
        Metric("onward_tool_calls_total", "counter", "Tool calls settled since the start.", ("tool", "outcome")),
        Metric(
            "onward_question_wait_seconds",
            "histogram",
            "How long questions waited that were answered since the start.",
            buckets=_WAITS_S,
        ),
        Metric(
            "onward_llm_requests_total",
            "counter",
            "Model requests since the start; outcome is ok or the kind of failure.",
            ("provider", "outcome"),
        ),
        Metric(
            "onward_llm_tokens_total",
            "counter",
            "Tokens since the start, by type; cache_read and cache_write are parts of input.",
            ("provider", "model", "type"),
        ),
        Metric("onward_llm_cost_usd_total", "counter", "US dollars that model requests since the start have cost."),
        Metric(
            "onward_journal_flush_seconds", "histogram", "How long flushes of journals to the disk took.", (), _SHORT_S
        ),
        Metric(
            "onward_event_loop_lag_seconds", "histogram", "How much later than asked for the loop woke.", (), _SHORT_S
        ),
    )
}


@dataclass(slots=True)
class _Histogram:
    counts: list[int]
    total: float = 0.0

    def observe(self, value: float, buckets: tuple[float, ...]) -> None:
        self.counts[bisect_left(buckets, value)] += 1
        self.total += value


class Meter:
    """Holds the numbers. On the event loop; nothing in it grows with the number of runs."""

    def __init__(self) -> None:
        self._values: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in METRICS}
        self._histograms = {
            name: _Histogram([0] * (len(metric.buckets) + 1))
            for name, metric in METRICS.items()
            if metric.kind == "histogram"
        }
        for metric in METRICS.values():
            if metric.kind == "counter" and not metric.labels:
                self._values[metric.name][()] = 0.0

    def add(self, name: str, value: float = 1.0, **labels: str) -> None:
        """Count. A name can have `MOST_SERIES` series; what comes after is counted as `other`."""
        key = tuple(map(labels.__getitem__, METRICS[name].labels))
        series = self._values[name]
        if key not in series and len(series) >= MOST_SERIES:
            key = (OTHER,) * len(key)
        series[key] = series.get(key, 0.0) + value

    def observe(self, name: str, seconds: float) -> None:
        """Note one duration."""
        self._histograms[name].observe(seconds, METRICS[name].buckets)

    def show(self, name: str, values: Mapping[tuple[str, ...], float]) -> None:
        """Replace all series of a gauge."""
        self._values[name] = dict(values)

    def render(self) -> str:
        """Return all of it as text."""
        lines: list[str] = []
        for name, metric in METRICS.items():
            lines += [f"# HELP {name} {metric.told}", f"# TYPE {name} {metric.kind}"]
            if metric.kind == "histogram":
                lines += _histogram_lines(metric, self._histograms[name])
            else:
                lines += [f"{name}{_labels(metric, key)} {value:.15g}" for key, value in self._values[name].items()]
        return "\n".join(lines) + "\n"


def _histogram_lines(metric: Metric, histogram: _Histogram) -> Iterator[str]:
    number = 0
    for bound, count in zip((*metric.buckets, float("inf")), histogram.counts, strict=True):
        number += count
        yield f'{metric.name}_bucket{{le="{"+Inf" if bound == float("inf") else f"{bound:g}"}"}} {number}'
    yield f"{metric.name}_sum {histogram.total:.9g}"
    yield f"{metric.name}_count {number}"


def _labels(metric: Metric, values: tuple[str, ...]) -> str:
    if not values:
        return ""
    pairs = (f'{label}="{_escaped(value)}"' for label, value in zip(metric.labels, values, strict=True))
    return "{" + ",".join(pairs) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
