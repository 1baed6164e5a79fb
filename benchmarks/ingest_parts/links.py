"""Links between two nodes and a server that can be cut and slowed.

Where network namespaces can be made, a node is one: a link is a pair of virtual devices, which is taken down to cut it,
and limited with ``tc`` to slow it, so that packets are dropped. Elsewhere a node is a loopback address, and its link a
small proxy.
"""

from __future__ import annotations

import random
import socket
import subprocess
import threading
import time
from contextlib import suppress
from typing import Protocol

NETWORK = "10.77.41"
PORT = 8790
LOSSY = ("netem", "loss", "20%", "delay", "40ms", "30ms")
SLOW = ("tbf", "rate", "400kbit", "burst", "4kb", "latency", "30ms")  # what does not fit in the queue is dropped


class Links(Protocol):
    """The links of two nodes to the server."""

    host: str  # where the server listens

    def prefix(self, node: int | None) -> list[str]:
        """Return the command that runs another one on a node, or on the server's machine."""
        ...

    def url(self, node: int) -> str:
        """Return the server's address as a node uses it."""
        ...

    def spoil(self, node: int, how: str) -> None:
        """Let a link be ``cut``, ``slow`` or ``fine``."""
        ...

    def close(self) -> None:
        """Remove the links."""
        ...


def links() -> Links:
    """Return links between namespaces if they can be made, else between loopback addresses."""
    try:
        return NamespaceLinks()
    except (OSError, subprocess.CalledProcessError):
        return ProxyLinks()


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class NamespaceLinks:
    """Three network namespaces, connected by a bridge in that of the server."""

    host = f"{NETWORK}.1"

    def __init__(self) -> None:
        self._names = ["wsk-server", "wsk-node0", "wsk-node1"]
        self.close()
        try:
            for name in self._names:
                _ip("netns", "add", name)
                _ip("-n", name, "link", "set", "lo", "up")
            self._connect()
        except BaseException:
            self.close()
            raise
        self._loss = self._has_netem()

    def _connect(self) -> None:
        server = self._names[0]
        _ip("-n", server, "link", "add", "br0", "type", "bridge")
        _ip("-n", server, "addr", "add", f"{self.host}/24", "dev", "br0")
        _ip("-n", server, "link", "set", "br0", "up")
        for node in range(2):
            name = self._names[node + 1]
            _ip("-n", server, "link", "add", f"to{node}", "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("-n", server, "link", "set", f"to{node}", "master", "br0", "up")
            _ip("-n", name, "addr", "add", f"{NETWORK}.{10 + node}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")

    def _has_netem(self) -> bool:
        tried = self._tc(0, "add", *LOSSY)
        self._tc(0, "del")
        return tried

    def _tc(self, node: int, action: str, *kind: str) -> bool:
        command = [*self.prefix(node), "tc", "qdisc", action, "dev", "eth0", "root", *kind]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def __str__(self) -> str:
        return f"network namespaces, links slowed with tc {'netem and tbf' if self._loss else 'tbf'}"

    def prefix(self, node: int | None) -> list[str]:
        """Return the command that runs another one there."""
        return ["ip", "netns", "exec", self._names[0 if node is None else node + 1]]

    def url(self, node: int) -> str:
        """Return the server's address as a node uses it."""
        return f"http://{self.host}:{PORT}"

    def spoil(self, node: int, how: str) -> None:
        """Let a link be cut, slow or fine."""
        _ip("-n", self._names[node + 1], "link", "set", "eth0", "down" if how == "cut" else "up")
        self._tc(node, "del")
        if how == "slow":
            self._tc(node, "add", *(LOSSY if self._loss and random.random() < 0.5 else SLOW))

    def close(self) -> None:
        """Remove the links."""
        for name in self._names:
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "del", name)


class ProxyLinks:
    """Loopback addresses; the link of each node is a proxy that forwards, delays or closes its connections."""

    host = "127.0.0.1"

    def __init__(self) -> None:
        self._proxies = [Proxy(f"127.0.0.{2 + node}", (self.host, PORT)) for node in range(2)]

    def __str__(self) -> str:
        return "loopback addresses, links cut and delayed by proxies"

    def prefix(self, node: int | None) -> list[str]:
        """Return the command that runs another one there."""
        return []

    def url(self, node: int) -> str:
        """Return the server's address as a node uses it."""
        return f"http://127.0.0.{2 + node}:{self._proxies[node].port}"

    def spoil(self, node: int, how: str) -> None:
        """Let a link be cut, slow or fine."""
        self._proxies[node].spoil(how)

    def close(self) -> None:
        """Remove the links."""
        for proxy in self._proxies:
            proxy.close()


class Proxy:
    """Forwards connections; when it is cut, they are closed wherever they are, and new ones are refused."""

    def __init__(self, address: str, target: tuple[str, int]) -> None:
        self._target = target
        self._how = "fine"
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server((address, 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def spoil(self, how: str) -> None:
        """Let a link be cut, slow or fine."""
        self._how = how
        if how == "cut":
            for one in list(self._open):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Remove the links."""
        self.spoil("cut")
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        with near, suppress(OSError):
            if self._how == "cut":
                return
            with socket.create_connection(self._target, 5) as far:
                self._open |= {near, far}
                back = threading.Thread(target=self._forward, args=(far, near), daemon=True)
                back.start()
                self._forward(near, far)
                back.join()
                self._open -= {near, far}

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(4096):
                if self._how == "slow":
                    time.sleep(random.uniform(0.0, 0.08))
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
