"""The dashboard and the alerts speak of the metrics there are, by their labels, and of nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from streaming.observe.metrics import Histogram, Metric, Metrics
from streaming.settings import Settings

CONFIGS = Path(__file__).resolve().parent.parent / "configs"

NAME = re.compile(r"\bseamscribe_\w+")
SELECTED = re.compile(r"(seamscribe_\w+)\{([^}]*)\}")
LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
GROUPED = re.compile(r"\b(?:by|ignoring|on|without) \(([^)]*)\)")
SETTING = re.compile(r"\b([a-z]+)\.([a-z_]+)\b")
SERVER = frozenset({"instance"})
"""Labels that Prometheus adds."""


def dashboard() -> Any:
    return json.loads((CONFIGS / "grafana.json").read_text(encoding="utf-8"))


def panels() -> list[Any]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def rules() -> list[Any]:
    (group,) = yaml.safe_load((CONFIGS / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    return list(group["rules"])


def expressions() -> list[str]:
    asked = [target["expr"] for panel in panels() for target in panel["targets"]]
    return asked + [rule["expr"] for rule in rules()]


def series() -> dict[str, Metric | Histogram]:
    """What a query may name, each with its metric."""
    found: dict[str, Metric | Histogram] = {}
    for name, metric in Metrics().all.items():
        suffixes = ("_bucket", "_sum", "_count") if isinstance(metric, Histogram) else ("",)
        found |= {f"{name}{suffix}": metric for suffix in suffixes}
    return found


def wrong(expression: str) -> Iterator[str]:
    """What is wrong with an expression."""
    known = series()
    names = set(NAME.findall(expression))
    yield from (f"{name} is no metric" for name in names - set(known))
    may = set(SERVER).union(*(known[name].labels for name in names & set(known)))
    if any(name.endswith("_bucket") for name in names):
        may.add("le")
    for listed in GROUPED.findall(expression):
        yield from (f"{label} is no label" for label in re.findall(r"\w+", listed) if label not in may)
    for name, selectors in SELECTED.findall(expression):
        own = SERVER | set(known[name].labels) if name in known else SERVER
        yield from (f"{name} has no label {label}" for label in LABEL.findall(selectors) if label not in own)
    for name in names & set(known):
        counts = known[name].kind in ("counter", "histogram")
        changes = re.search(rf"(?:rate|increase)\({name}\b", expression) is not None
        if counts != changes:
            yield f"{name} is a {known[name].kind}"
    if expression.count("(") != expression.count(")"):
        yield "its parentheses do not match"


@pytest.mark.parametrize("expression", expressions())
def test_an_expression_speaks_of_what_there_is(expression: str) -> None:
    assert NAME.search(expression)
    assert list(wrong(expression)) == []


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("rate(seamscribe_wrods_total[5m])", "is no metric"),
        ("rate(seamscribe_queue_seconds[5m])", "is no metric"),
        ('rate(seamscribe_gaps_total{reason="loop"}[5m])', "has no label reason"),
        ("sum by (le) (rate(seamscribe_gaps_total[5m]))", "le is no label"),
        ("seamscribe_gaps_total", "is a counter"),
        ("rate(seamscribe_journal_ok[5m])", "is a gauge"),
        ("(seamscribe_journal_ok", "parentheses"),
    ],
)
def test_this_sees_what_is_wrong(expression: str, told: str) -> None:
    assert told in " ".join(wrong(expression))


def test_the_dashboard_shows_every_metric() -> None:
    """Whoever adds a metric adds where it is seen."""
    known = series()
    shown = {
        id(known[name]) for panel in panels() for t in panel["targets"] for name in NAME.findall(t["expr"])
    }
    assert [name for name, metric in known.items() if id(metric) not in shown] == []


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        assert panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}", "no data source of ours"
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs) > 0
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
    variables = {variable["name"] for variable in dashboard()["templating"]["list"]}
    used = set(re.findall(r"\$(\w+)", json.dumps([p["targets"] for p in panels()]))) - {"__rate_interval"}
    assert used <= variables == {"datasource", "instance"}


def test_every_alert_says_what_to_do() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    titles = {panel["title"] for panel in panels()}
    sections = {name: type(part) for name, part in _sections().items()}
    for rule in rules():
        assert rule["labels"]["severity"] in ("warning", "critical")
        told, remedy = rule["annotations"]["summary"], rule["annotations"]["remedy"]
        assert set(rule["annotations"]) == {"summary", "remedy"}
        assert len(told) < 100
        assert len(remedy) > 60
        # What it points to exists: panels, other alerts, settings.
        assert set(re.findall(r'"([^"]+)"', remedy)) <= titles, rule["alert"]
        assert set(re.findall(r"Seamscribe[A-Z]\w+", remedy)) <= set(names), rule["alert"]
        for section, key in SETTING.findall(remedy):
            assert section not in sections or hasattr(sections[section], key), f"{section}.{key}"
        assert ("$labels.instance" in told) == ("absent(" not in rule["expr"])


def test_what_hurts_most_is_watched() -> None:
    asked = " ".join(rule["expr"] for rule in rules())
    for name in ("commit_delay", "queue", "gap", "starved", "journal_ok", "refusals", "resident_memory"):
        assert f"seamscribe_{name}" in asked


def _sections() -> dict[str, Any]:
    settings = Settings()
    return {name: getattr(settings, name) for name in Settings.__struct_fields__}
