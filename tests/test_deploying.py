"""What the compose file and the manifests name exists: settings, ports, probes, metrics, options, each other.

They are not run here, which takes an engine that CI has not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.sglang.flags import parse_arguments
from engine.sglang.launcher import _parser as engine_parser
from engine.sglang.launcher import _split
from streaming.crew import LEAVING_S, share_of
from streaming.observe.metrics import Gauge, Metrics
from streaming.serve import _parser as serve_parser
from streaming.settings import Settings, load
from streaming.web.guard import PUBLIC

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
DIGEST = "0" * 64
COMPOSE: Any = yaml.safe_load((CONFIGS / "compose.yaml").read_text("utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
MANIFESTS: list[Any] = [
    one
    for file in sorted((CONFIGS / "k8s").glob("*.yaml"))
    for one in yaml.safe_load_all(file.read_text("utf-8"))
]

PROBES = {
    "seamscribe-front": PUBLIC,
    "seamscribe-router": {"/readiness", "/liveness"},
    "seamscribe-engine": {"/health"},
}
"""What each answers. The router test asks a real one the first, and real engines the last."""


def named(kind: str) -> dict[str, Any]:
    """Manifests of a kind, by name."""
    return {one["metadata"]["name"]: one for one in MANIFESTS if one["kind"] == kind}


def workloads() -> dict[str, Any]:
    return named("Deployment") | named("StatefulSet")


def pod(workload: Any) -> Any:
    return workload["spec"]["template"]["spec"]


def container(workload: Any) -> Any:
    (one,) = pod(workload)["containers"]
    return one


def environment(container: Any) -> dict[str, str]:
    """Of a container, with something of the right form where only the cluster knows it."""
    told = {"secretKeyRef": DIGEST, "status.podIP": "10.1.2.3", "metadata.namespace": "default"}
    found: dict[str, str] = {}
    for one in container.get("env", []):
        source = one.get("valueFrom", {})
        place = source.get("fieldRef", {}).get("fieldPath") or next(iter(source), "")
        found[one["name"]] = one.get("value") or told[place]
    return found


def composed(service: Any) -> dict[str, str]:
    """The environment of a service, with a digest for what the operator brings."""
    return {
        k: re.sub(r"\$\{SEAMSCRIBE_KEY_SHA256:\?[^}]*\}", DIGEST, v)
        for k, v in service["environment"].items()
    }


def settings_of(arguments: list[str], environment: dict[str, str]) -> Settings:
    """As `seamscribe serve` makes them."""
    assert arguments[0] == "serve"
    said = serve_parser().parse_args(arguments[1:])
    overrides = {
        "server.processes": said.processes,
        "engine.kind": said.engine,
        "engine.model": said.model,
    }
    return load(environment=environment, overrides=overrides)


def reached(url: str) -> tuple[str, int]:
    """Host and port of an address."""
    found = re.fullmatch(r"\w+://([\w-]+):(\d+)(?:/.*)?", url)
    assert found, url
    return found[1], int(found[2])


# -- compose ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["front", "front-cpu"])
def test_a_composed_front_can_be_started_and_finds_the_others(name: str) -> None:
    service = SERVICES[name]
    settings = settings_of(service["command"], composed(service))
    for number in range(settings.server.processes):
        assert share_of(settings, number).cluster.port == settings.cluster.port + number
    assert reached(settings.journal.url) == ("redis", 6379)
    (published,) = service["ports"]
    assert published.split(":")[1] == str(settings.server.port)
    assert seconds(service["stop_grace_period"]) >= settings.server.drain_s + LEAVING_S
    assert service["depends_on"]["redis"] == {"condition": "service_healthy"}
    for server in settings.engine.servers:
        host, port = reached(server)
        assert f"--port={port}" in SERVICES[host]["command"]
        assert host in service["depends_on"]


def test_the_composed_router_knows_every_engine() -> None:
    command = SERVICES["router"]["command"]
    urls = [one for one in command if one.startswith("http")]
    engines = [name for name in SERVICES if name.startswith("engine")]
    assert [reached(url)[0] for url in urls] == engines
    for url in urls:
        host, port = reached(url)
        assert serves_at(SERVICES[host]["command"]) == ("0.0.0.0", port)
    gpus = [
        SERVICES[name]["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"] for name in engines
    ]
    assert gpus == [["0"], ["1"]]


@pytest.mark.parametrize(
    ("name", "path"), [("router", "/readiness"), ("engine-0", "/health"), ("engine-1", "/health")]
)
def test_composed_health_checks_ask_where_it_listens(name: str, path: str) -> None:
    kind, python, option, code = SERVICES[name]["healthcheck"]["test"]
    assert (kind, option) == ("CMD", "-c")
    assert python.startswith("python")
    compile(code, name, "exec")
    assert f"http://127.0.0.1:30000{path}'" in code


def test_what_is_composed_is_built_from_what_there_is_and_started_with_and_without_a_gpu() -> None:
    for name, service in SERVICES.items():
        build = service.get("build", {})
        if "dockerfile" in build:
            assert (CONFIGS / build["context"] / build["dockerfile"]).is_file(), name
        assert set(service.get("depends_on", {})) <= SERVICES.keys()
        for other in service.get("depends_on", {}):
            assert not set(SERVICES[other].get("profiles", [])) - set(service["profiles"]), (
                "it would not start"
            )
    assert {p for s in SERVICES.values() for p in s.get("profiles", [])} == {"cpu", "gpu"}
    kept = {volume.split(":")[0] for s in SERVICES.values() for volume in s.get("volumes", [])}
    assert kept == set(COMPOSE["volumes"])


# -- Kubernetes ------------------------------------------------------------------------------------------


def test_fronts_can_be_started_and_find_the_others() -> None:
    front = workloads()["seamscribe-front"]
    one = container(front)
    settings = settings_of(one["args"], environment(one))
    ports = {port["name"]: port["containerPort"] for port in one["ports"]}
    assert ports == {"http": settings.server.port, "cluster": settings.cluster.port}
    assert settings.cluster.host == "10.1.2.3"
    for url in (settings.journal.url, *settings.engine.servers):
        host, port = reached(url)
        assert port in [p["port"] for p in named("Service")[host]["spec"]["ports"]]
    scraped = front["spec"]["template"]["metadata"]["annotations"]
    assert scraped["prometheus.io/port"] == str(settings.cluster.port)
    assert scraped["prometheus.io/path"] == "/metrics"
    slept = float(one["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod(front)["terminationGracePeriodSeconds"] >= slept + settings.server.drain_s + LEAVING_S


def test_engines_listen_where_they_are_looked_for() -> None:
    one = container(workloads()["seamscribe-engine"])
    assert serves_at(one["args"]) == ("0.0.0.0", one["ports"][0]["containerPort"])
    router = container(workloads()["seamscribe-router"])["args"]
    assert f"--service-discovery-port={one['ports'][0]['containerPort']}" in router
    label = router[router.index("--selector") + 1]
    key, _, value = label.partition("=")
    assert workloads()["seamscribe-engine"]["spec"]["template"]["metadata"]["labels"][key] == value
    role = named("Role")["seamscribe-router"]["rules"]
    assert role == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    bound = named("RoleBinding")["seamscribe-router"]
    assert bound["roleRef"]["name"] in named("Role")
    account = pod(workloads()["seamscribe-router"])["serviceAccountName"]
    assert bound["subjects"] == [{"kind": "ServiceAccount", "name": account}]
    assert account in named("ServiceAccount")


def probes() -> Iterator[tuple[str, str, Any]]:
    for name, workload in workloads().items():
        for kind, probe in container(workload).items():
            if kind.endswith("Probe"):
                yield name, kind, probe


@pytest.mark.parametrize(
    ("name", "kind", "probe"), [pytest.param(*one, id="-".join(one[:2])) for one in probes()]
)
def test_a_probe_asks_what_there_is(name: str, kind: str, probe: Any) -> None:
    if name == "seamscribe-redis":
        assert probe["exec"]["command"][0] == "redis-cli"
        return
    asked = probe["httpGet"]
    assert asked["path"] in PROBES[name]
    assert asked["port"] in [port["name"] for port in container(workloads()[name])["ports"]]
    if name == "seamscribe-front":
        assert asked["path"] == ("/readyz" if kind == "readinessProbe" else "/healthz")


def test_everything_selects_what_there_is() -> None:
    labels = {name: w["spec"]["template"]["metadata"]["labels"] for name, w in workloads().items()}
    for name, workload in workloads().items():
        assert workload["spec"]["selector"]["matchLabels"] == labels[name]
    for service in named("Service").values():
        (found,) = [name for name, has in labels.items() if has == service["spec"]["selector"]]
        ports = {port["name"] for port in container(workloads()[found])["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    for budget in named("PodDisruptionBudget").values():
        assert budget["spec"]["selector"]["matchLabels"] in labels.values()
    assert set(named("PodDisruptionBudget")) == set(named("Deployment"))


def test_they_scale_on_what_is_measured() -> None:
    known, asked = Metrics().all, []
    for name, scaler in named("HorizontalPodAutoscaler").items():
        target = scaler["spec"]["scaleTargetRef"]
        assert target["name"] == name
        assert name in named(target["kind"])
        asked += [
            m["external"]["metric"]["name"] for m in scaler["spec"]["metrics"] if m["type"] == "External"
        ]
        replicas = workloads()[name]["spec"]["replicas"]
        assert scaler["spec"]["minReplicas"] <= replicas <= scaler["spec"]["maxReplicas"]
    assert asked == ["seamscribe_capacity_used_ratio"]
    assert all(isinstance(known[name], Gauge) for name in asked)


def test_both_ask_the_router_for_the_same() -> None:
    composed, other = SERVICES["router"]["command"], container(workloads()["seamscribe-router"])["args"]
    assert rules(composed) == rules(other)
    assert len(rules(composed)) > 6


def rules(command: list[str]) -> set[str]:
    """Options that say how to treat servers, not which there are."""
    return {
        one
        for one in command
        if one.startswith("--") and not re.match(r"--(service|worker-urls|selector)", one)
    }


def serves_at(command: list[str]) -> tuple[str, int]:
    """Where `seamscribe engine` has its server listen."""
    assert command[0] == "engine"
    own, _, rest = _split(command[1:])
    return str(parse_arguments(rest)["host"]), int(engine_parser().parse_args(own).port)


def seconds(text: str) -> float:
    assert text.endswith("s")
    return float(text[:-1])


def test_the_head_of_the_compose_file_says_how() -> None:
    head = (CONFIGS / "compose.yaml").read_text("utf-8").split("\nname:")[0]
    run = re.findall(r"^#   docker compose -f (\S+) --profile (\w+) up$", head, re.MULTILINE)
    assert run == [("configs/compose.yaml", "gpu"), ("configs/compose.yaml", "cpu")]
    (key,) = re.findall(r"docker run --rm seamscribe key (.*)$", head, re.MULTILINE)
    assert key == "new bot --scope admin"
