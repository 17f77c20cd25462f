"""The command lines and configuration files of the components."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.controlplane import stages
from tests.controlplane.options import Options
from tests.controlplane.pki import Pki

# So high that no client of ours ever waits for itself.
_QPS = 5000
_BURST = 10000

# Health and metrics are read without a token.
_OPEN_PATHS = "/healthz,/readyz,/livez,/metrics"


@dataclass(frozen=True)
class Layout:
    """Where things of one control plane are: its folder, its keys, its ports."""

    folder: Path
    pki: Pki
    ports: Mapping[str, int]

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "admin.kubeconfig"

    @property
    def audit_log(self) -> Path:
        """The API server's audit log."""
        return self.folder / "audit.log"


def arguments(name: str, layout: Layout, options: Options) -> list[str]:
    """Return the arguments of a component, having written the files that they name."""
    make = {
        "etcd": _etcd,
        "kube-apiserver": _api_server,
        "kube-controller-manager": _controller_manager,
        "kube-scheduler": _scheduler,
        "kwok": _kwok,
    }[name]
    return [*make(layout, options), *options.extra_args.get(name, ())]


def _etcd(layout: Layout, _: Options) -> list[str]:
    client = f"http://127.0.0.1:{layout.ports['etcd']}"
    peer = f"http://127.0.0.1:{layout.ports['etcd-peer']}"
    return [
        f"--data-dir={layout.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync=true",
        "--quota-backend-bytes=8589934592",
        "--log-level=warn",
    ]


def _api_server(layout: Layout, options: Options) -> list[str]:
    pki = layout.pki
    issuer = "https://kubernetes.default.svc"
    flags = [
        f"--etcd-servers=http://127.0.0.1:{layout.ports['etcd']}",
        f"--bind-address={options.bind_address}",
        f"--secure-port={layout.ports['kube-apiserver']}",
        f"--tls-cert-file={pki.server_cert}",
        f"--tls-private-key-file={pki.server_key}",
        f"--client-ca-file={pki.ca_cert}",
        f"--token-auth-file={layout.folder / 'tokens.csv'}",
        "--authorization-mode=Node,RBAC",
        f"--service-account-issuer={issuer}",
        f"--api-audiences={issuer}",
        f"--service-account-key-file={pki.service_account_public}",
        f"--service-account-signing-key-file={pki.service_account_key}",
        # Otherwise a server that is to stop waits for its watchers for a minute.
        "--shutdown-watch-termination-grace-period=1s",
        "--delete-collection-workers=16",
        "--service-cluster-ip-range=10.96.0.0/16",
        f"--allow-privileged={str(options.allow_privileged).lower()}",
        "--kubelet-preferred-address-types=Hostname,InternalIP",
        *_gates(options),
    ]
    if options.advertise_address is None:
        # A loopback address is not allowed as an endpoint of the Service.
        flags += [f"--advertise-address={options.bind_address}", "--endpoint-reconciler-type=none"]
    else:
        flags.append(f"--advertise-address={options.advertise_address}")
    if options.audit_policy is not None:
        policy = layout.folder / "audit-policy.json"
        policy.write_text(json.dumps(options.audit_policy))
        flags += [f"--audit-policy-file={policy}", f"--audit-log-path={layout.audit_log}"]
    return flags


def _controller_manager(layout: Layout, options: Options) -> list[str]:
    return [
        *_behind_the_server("kube-controller-manager", layout),
        f"--kubeconfig={layout.kubeconfig}",
        f"--kube-api-qps={_QPS}",
        f"--kube-api-burst={_BURST}",
        "--leader-elect=false",
        f"--service-account-private-key-file={layout.pki.service_account_key}",
        f"--root-ca-file={layout.pki.ca_cert}",
        f"--cluster-signing-cert-file={layout.pki.ca_cert}",
        f"--cluster-signing-key-file={layout.pki.ca_key}",
        f"--node-monitor-grace-period={options.node_monitor_grace:g}s",
        "--node-monitor-period=1s",
        "--concurrent-deployment-syncs=20",
        "--concurrent-replicaset-syncs=20",
        "--concurrent-statefulset-syncs=20",
        "--concurrent-namespace-syncs=20",
        "--concurrent-gc-syncs=20",
        *_gates(options),
    ]


def _scheduler(layout: Layout, options: Options) -> list[str]:
    config: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(layout.kubeconfig), "qps": _QPS, "burst": _BURST},
        **options.scheduler_config,
    }
    path = layout.folder / "scheduler.yaml"
    path.write_text(yaml.safe_dump(config))
    return [
        *_behind_the_server("kube-scheduler", layout),
        f"--config={path}",
        f"--v={options.scheduler_verbosity}",
        *_gates(options),
    ]


def _kwok(layout: Layout, options: Options) -> list[str]:
    path = layout.folder / "kwok.yaml"
    path.write_text(stages.render(options))
    if options.managed_nodes == "all":
        nodes = "--manage-all-nodes=true"
    else:
        nodes = f"--manage-nodes-with-annotation-selector={stages.MANAGED}=fake"
    return [
        f"--kubeconfig={layout.kubeconfig}",
        f"--config={path}",
        f"--server-address=127.0.0.1:{layout.ports['kwok']}",
        # None of loopback: the API server refuses such endpoints of a Service.
        "--node-ip=10.63.255.1",
        "--cidr=10.64.0.0/10",
        # With Leases, KWOK ignores each pod that it sees before it sees its own Lease on the node: on a busy machine,
        # after a restart, for ever. The node's own reports suffice; they are more frequent than its grace period.
        "--node-lease-duration-seconds=0",
        nodes,
    ]


def _behind_the_server(name: str, layout: Layout) -> list[str]:
    """Return what the controller manager and the scheduler have in common."""
    return [
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.ports[name]}",
        f"--tls-cert-file={layout.pki.server_cert}",
        f"--tls-private-key-file={layout.pki.server_key}",
        f"--authentication-kubeconfig={layout.kubeconfig}",
        f"--authorization-kubeconfig={layout.kubeconfig}",
        f"--authorization-always-allow-paths={_OPEN_PATHS}",
    ]


def _gates(options: Options) -> list[str]:
    gates = ",".join(f"{name}={str(on).lower()}" for name, on in options.feature_gates.items())
    return [f"--feature-gates={gates}"] if gates else []
