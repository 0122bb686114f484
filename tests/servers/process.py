# SPDX-License-Identifier: Apache-2.0
"""One server as a child: started on a free port, waited for, stopped by its own pid."""

import contextlib
import fcntl
import functools
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request


given_ports = set()


@functools.cache
def ports_of_all_tests():
    """A file that stands for all ports: the lock of its byte N is port N's."""
    return open(pathlib.Path(tempfile.gettempdir()) / "cistern-test-ports", "ab")


def is_ours(port):
    """True from then on until this process ends: a server may be stopped and started again on its port."""
    try:
        fcntl.lockf(ports_of_all_tests(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        return True
    except OSError:  # another test process has it
        return False


def free_port(host="127.0.0.1"):
    """For a server that cannot choose one itself. Below those that the kernel gives to clients: one of the thousands of
    connections beside us would have it before the server binds it."""
    lowest = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(lowest // 3, lowest)
        if port in given_ports or not is_ours(port):
            continue
        given_ports.add(port)
        with contextlib.suppress(OSError), socket.socket() as s:
            s.bind((host, port))
            return port


def sockets_of(pid):
    """Inodes."""
    links = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # it was just closed
            links.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return {link[len("socket:["):-1] for link in links if link.startswith("socket:")}


def tcp_sockets():
    """(local port, state, inode) of each that has an address."""
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            yield int(words[1].rpartition(":")[2], 16), words[3], words[9]


class Server:
    """A child with a directory of its own. Subclasses give `command`, and `ready` if an open port is not enough."""

    scheme = "http"
    host = "127.0.0.1"

    def __init__(self, name):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-"))
        self.port = free_port(self.host)
        self.child = None

    @property
    def url(self):
        return f"{self.scheme}://{self.host}:{self.port}"

    def command(self):
        raise NotImplementedError

    def environment(self):
        return dict(os.environ)

    def ready(self):
        with socket.create_connection((self.host, self.port), timeout=1):
            return True

    def start(self, seconds=60):
        log = open(self.root / "log", "ab")
        self.child = subprocess.Popen(self.command(), stdout=log, stderr=log, env=self.environment())
        log.close()
        deadline = time.monotonic() + seconds
        while True:
            if self.child.poll() is not None:
                raise RuntimeError(f"{self.command()[0]} ended: {(self.root / 'log').read_text()[-2000:]}")
            try:
                if self.ready():
                    return self
            except (OSError, urllib.error.URLError):
                pass
            if time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"{self.command()[0]} was not ready after {seconds} s")
            time.sleep(0.05)

    def is_idle(self):
        """It has closed the connections of all clients, also of those that were killed: none of their requests is left. A
        connection that was reset has no address any more."""
        listening = "0A"
        others = {inode for port, state, inode in tcp_sockets() if port != self.port or state == listening}
        return not sockets_of(self.child.pid) - others

    def stop(self):
        if self.child and self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
            try:
                self.child.wait(5)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
        shutil.rmtree(self.root, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()
