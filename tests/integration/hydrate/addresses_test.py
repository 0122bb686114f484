# SPDX-License-Identifier: Apache-2.0
"""A store whose name has many addresses: all of them are used, and one that is dead costs a second, not the run."""
import contextlib
import socket
import struct
import subprocess
import threading

import pytest

from integration.lib.buckets import clean_environment
from paths import CISTERN
from servers.bucket import KEYS, BucketServer

pytestmark = [pytest.mark.asan, pytest.mark.timeout(300)]
COUNT, NAME = 400, "many.test"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return tmp_path_factory.mktemp("tls") / "certificate.pem"


@pytest.fixture(scope="module")
def server():
    with BucketServer("--objects", f"data/:{COUNT}:20000") as running:
        running.fault("op=get,do=latency:10")
        running.truth = {f"object-{i:09}": running.content(f"data/object-{i:09}") for i in range(0, COUNT, 40)}
        yield running


class Address:
    """One of the name's: the server behind it, or what goes wrong there."""

    def __init__(self, ip, port, how):
        self.how, self.port, self.count, self.held = how, port, 0, []
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((ip, port))
        if how == "refuses":
            return
        self.listener.listen(0 if how == "silent" else 512)
        if how == "silent":  # its queue is full: the kernel drops what comes
            for _ in range(3):
                self.held.append(socket.socket())
                self.held[-1].setblocking(False)
                self.held[-1].connect_ex((ip, port))
        else:
            threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                self.count += 1
                if self.how == "mute":
                    self.held.append(near)
                    continue
                if self.how == "resets":
                    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    near.close()
                    continue
                if self.how == "has no server":
                    threading.Thread(target=self.answer_503, args=(near,), daemon=True).start()
                    continue
                far = socket.create_connection(("127.0.0.1", self.port))
                for a, b in ((near, far), (far, near)):
                    threading.Thread(target=self.pump, args=(a, b), daemon=True).start()

    @staticmethod
    def pump(a, b):
        with contextlib.suppress(OSError):
            while data := a.recv(1 << 16):
                b.sendall(data)
        for s in (a, b):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def answer_503(near):
        """As a balancer whose servers are gone, on connections that it keeps."""
        with contextlib.suppress(OSError), near.makefile("rb") as lines:
            while line := lines.readline():
                if line == b"\r\n":
                    near.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        for s in [self.listener, *self.held]:
            s.close()


@contextlib.contextmanager
def addresses(tmp_path, port, *how):
    """The name's addresses, and a command's beginning that knows them by a hosts file of its own."""
    ips = [f"127.0.1.{i + 10}" for i in range(len(how))]
    hosts = tmp_path / "hosts"
    hosts.write_text("".join(f"{ip} {NAME}\n{ip} other.test\n" for ip in ips) + "127.0.0.1 localhost\n")
    made = [Address(ip, port, h) for ip, h in zip(ips, how)]
    try:
        yield made, ["unshare", "--mount", "--propagation", "private", "sh", "-c",
                     'mount --bind "$0" /etc/hosts && exec "$@"', hosts]
    finally:
        for address in made:
            address.close()


def hydrate(before, url, folder, *flags, **environment):
    return subprocess.run([*before, CISTERN, "hydrate", "--no-progress", "--path-style", "--endpoint", url, *flags,
                          "s3://bench/data/", folder], env=clean_environment(**KEYS, **environment), capture_output=True, text=True, timeout=240, check=False)


def ends_right(server, run, folder):
    assert run.returncode == 0, run.stderr
    assert len(list(folder.iterdir())) == COUNT
    for name, content in server.truth.items():
        assert (folder / name).read_bytes() == content


def test_connections_are_spread_over_all_addresses(server, tmp_path):
    with addresses(tmp_path, server.port, "good", "good", "good") as (made, before):
        run = hydrate(before, f"http://{NAME}:{server.port}", tmp_path / "out", "--concurrency", "24")
        ends_right(server, run, tmp_path / "out")
        counts = [a.count for a in made]
        assert min(counts) >= 4 and max(counts) <= 2 * min(counts), counts


@pytest.mark.parametrize("how", ["silent", "refuses", "resets", "mute"])
def test_one_of_three_that_is_dead_is_set_aside(server, tmp_path, how):
    with addresses(tmp_path, server.port, "good", how, "good") as (made, before):
        # libcurl waits five seconds for a silent one, each time: more than hydrate() lets a run live. So is the stall timeout,
        # which a mute one took.
        run = hydrate(before, f"http://{NAME}:{server.port}", tmp_path / "out", "--json", "--stall", "600s")
        ends_right(server, run, tmp_path / "out")
        assert made[1].count <= 64  # as many as were under way when the first one failed
        assert made[0].count > 0 and made[2].count > 0


def test_all_that_are_there_may_be_dead_but_one(server, tmp_path):
    with addresses(tmp_path, server.port, "silent", "refuses", "resets", "good") as (_, before):
        run = hydrate(before, f"http://{NAME}:{server.port}", tmp_path / "out")
        ends_right(server, run, tmp_path / "out")


def test_one_of_two_whose_server_is_gone_is_left(server, tmp_path):
    """Its connections would be kept, and asked again."""
    with addresses(tmp_path, server.port, "has no server", "good") as (made, before):
        run = hydrate(before, f"http://{NAME}:{server.port}", tmp_path / "out")
        ends_right(server, run, tmp_path / "out")
        assert made[0].count > 0


def test_addresses_that_all_refuse_are_reported(server, tmp_path):
    with addresses(tmp_path, server.port, "refuses", "refuses") as (_, before):
        run = hydrate(before, f"http://{NAME}:{server.port}", tmp_path / "out", "--retries", "2")
        assert run.returncode == 5 and "CIS1611" in run.stderr and "Connection refused" in run.stderr, run.stderr


def test_this_machine_needs_no_name_service(server, tmp_path):
    with addresses(tmp_path, server.port) as (_, before):
        run = hydrate(before, f"http://bucket.LocalHost:{server.port}", tmp_path / "out")
        ends_right(server, run, tmp_path / "out")


def test_unknown_host_name_is_an_error(server, tmp_path):
    with addresses(tmp_path, server.port) as (_, before):
        run = hydrate(before, "http://nobody.test:8080", tmp_path / "out", "--retries", "2")
        assert run.returncode == 5 and "CIS1611" in run.stderr, run.stderr
        assert "cannot find the address of 'http://nobody.test:8080'" in run.stderr


def test_a_certificate_is_checked_against_the_name_and_not_the_address(certificate, tmp_path):
    with BucketServer("--objects", f"data/:{COUNT}:20000", "--tls", certificate) as secure:
        with addresses(tmp_path, secure.port, "good", "good") as (_, before):
            trust = ("--ca-file", certificate, "--retries", "1")
            run = hydrate(before, f"https://other.test:{secure.port}", tmp_path / "out", *trust)
            assert run.returncode == 4 and "CIS1613" in run.stderr and "other.test" in run.stderr, run.stderr
            run = hydrate(before, f"https://{NAME}:{secure.port}", tmp_path / "out", *trust)
            assert run.returncode == 0, run.stderr


# ---- proxies ---------------------------------------------------------------------------------------------------------


class Proxy:
    """Forwards requests in absolute form; it alone knows the name's address."""

    def __init__(self, port):
        self.to, self.count = port, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                threading.Thread(target=self.forward, args=(near,), daemon=True).start()

    def forward(self, near):
        far = socket.create_connection(("127.0.0.1", self.to))
        threading.Thread(target=Address.pump, args=(far, near), daemon=True).start()
        with contextlib.suppress(OSError), near.makefile("rb") as lines:
            while line := lines.readline():
                method, url, version = line.split()
                head = b" ".join([method, b"/" + url.split(b"/", 3)[3], version]) + b"\r\n"
                while (line := lines.readline()) not in (b"\r\n", b""):
                    head += line
                self.count += 1
                far.sendall(head + b"\r\n")


def test_through_a_proxy_the_name_is_the_proxys_business(server, tmp_path):
    proxy = Proxy(server.port)
    run = hydrate([], "http://known-to-the-proxy.test:80", tmp_path / "out", http_proxy=proxy.url)
    ends_right(server, run, tmp_path / "out")
    assert proxy.count > COUNT


def test_no_proxy_is_obeyed(server, tmp_path):
    proxy = Proxy(server.port)
    with addresses(tmp_path, server.port, "good", "good") as (made, before):
        run = hydrate(before, f"http://{NAME}:{server.port}", tmp_path / "out", http_proxy=proxy.url, no_proxy=".test")
        ends_right(server, run, tmp_path / "out")
        assert proxy.count == 0 and made[0].count + made[1].count > 0
