"""Start, kill and look at Qdrant nodes on loopback for measurements: a given binary, its own ports and folder each."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

START_S = 120.0
ACTIVE_S = 120.0


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Node:
    """One process. In a cluster the first node is asked to let the others in."""

    def __init__(
        self,
        binary: Path,
        folder: Path,
        first: Node | None = None,
        *,
        in_cluster: bool = False,
    ) -> None:
        self.binary, self.folder, self.first, self.in_cluster = (
            binary,
            folder,
            first,
            in_cluster,
        )
        self.http, self.p2p = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.http}"
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "log_level": "WARN",
            "telemetry_disabled": True,
            "storage": {
                "storage_path": str(folder / "storage"),
                "snapshots_path": str(folder / "snapshots"),
            },
            "service": {
                "host": "127.0.0.1",
                "http_port": self.http,
                "grpc_port": None,
                "enable_static_content": False,
            },
            "cluster": {"enabled": in_cluster, "p2p": {"port": self.p2p}},
        }
        (folder / "config.yaml").write_text(json.dumps(settings))

    def start(self) -> None:
        command = [
            str(self.binary),
            "--config-path",
            str(self.folder / "config.yaml"),
            "--disable-telemetry",
        ]
        if self.in_cluster:
            command += ["--uri", f"http://127.0.0.1:{self.p2p}"]
        if self.first is not None:
            command += ["--bootstrap", f"http://127.0.0.1:{self.first.p2p}"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)

    def wait(self) -> None:
        """Return when it answers that it is ready."""
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            try:
                with urllib.request.urlopen(f"{self.url}/readyz", timeout=2) as answer:  # noqa: S310 - our own node
                    if answer.status == 200:
                        return
            except OSError:
                time.sleep(0.1)
        raise TimeoutError(f"{self.url} is not ready; see {self.folder / 'log'}")

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=10) as answer:  # noqa: S310
            return json.load(answer)["result"]

    def wake_optimizer(self, collection: str) -> None:
        """Have the server go on building what an earlier run left half built: it waits for a change otherwise."""
        body = json.dumps({"optimizers_config": {}}).encode()
        asked = urllib.request.Request(  # noqa: S310
            f"{self.url}/collections/{collection}", body, {"content-type": "application/json"}, method="PATCH"
        )
        urllib.request.urlopen(asked, timeout=60).close()  # noqa: S310

    def memory_mib(self) -> dict[str, int]:
        """Return resident memory of the process: all of it, and without the pages of files."""
        assert self.process is not None
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        found = {
            name: int(rest.split()[0]) >> 10
            for name, _, rest in (line.partition(":") for line in lines)
            if name.startswith(("VmRSS", "RssAnon", "VmHWM"))
        }
        return {
            "resident": found["VmRSS"],
            "of_it_not_files": found["RssAnon"],
            "most": found["VmHWM"],
        }

    def cpu_s(self) -> float:
        """Return the processor time that it has used so far: what a busy machine does not blur."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def disk_mib(self) -> int:
        total = 0
        for folder, _, names in os.walk(self.folder / "storage"):
            for name in names:
                try:
                    total += (Path(folder) / name).lstat().st_blocks * 512
                except FileNotFoundError:
                    continue
        return total >> 20


def cluster(binary: Path, folder: Path, many: int) -> list[Node]:
    """Return `many` nodes that know each other, all ready."""
    nodes: list[Node] = []
    for number in range(many):
        node = Node(
            binary,
            folder / f"node{number}",
            nodes[0] if nodes else None,
            in_cluster=many > 1,
        )
        node.start()
        node.wait()
        nodes.append(node)
    end = time.monotonic() + START_S
    while many > 1 and any(len(node.ask("/cluster").get("peers", {})) < many for node in nodes):
        if time.monotonic() > end:
            raise TimeoutError("the nodes do not know each other")
        time.sleep(0.2)
    return nodes


def all_active(nodes: list[Node], collections: list[str]) -> bool:
    """Return whether every replica of these collections is active, as every node says."""
    try:
        for node in nodes:
            for name in collections:
                told = node.ask(f"/collections/{name}/cluster")
                shards = told["local_shards"] + told["remote_shards"]
                if not shards or any(shard["state"] != "Active" for shard in shards) or told["shard_transfers"]:
                    return False
    except OSError:
        return False
    return True


def wait_active(nodes: list[Node], collections: list[str]) -> float:
    """Return after how many seconds every replica is active."""
    began = time.monotonic()
    while not all_active(nodes, collections):
        if time.monotonic() - began > ACTIVE_S:
            raise TimeoutError("not every replica came back")
        time.sleep(0.2)
    return time.monotonic() - began
