# SPDX-License-Identifier: Apache-2.0
"""Something between a client and the API server, which does to requests what networks, proxies and tired servers do.

    with ApiProxy(cluster) as proxy:
        proxy.fault("GET", "watch=1", cut(100))      # the next such request; times=N for more, times=None for all
        proxy.fault(None, "", cut(100), after=7)    # whatever is asked, the eighth time from now
        KubeTool(cluster.kubeconfig_for("admin", server=proxy.url))
"""

import http.client
import http.server
import json
import socket
import ssl
import struct
import threading
import time


def answer(status, body=b"", content_type="application/json", **headers):
    """That, without asking the server."""
    def act(handler, forward):
        handler.send_response(status)
        handler.send_header("content-type", content_type)
        handler.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), str(value))
        handler.end_headers()
        handler.wfile.write(body)
    return act


def cut(after, reset=False):
    """The server's answer, and the end of the connection after this number of bytes of its body."""
    def act(handler, forward):
        left = after
        for piece in forward():
            handler.chunk(piece[:left])
            left -= len(piece[:left])
            if left == 0:
                break
        if reset:
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        handler.close()
    return act


def crumbs(size, seconds=0.0):
    """The server's answer in pieces of that size."""
    def act(handler, forward):
        for piece in forward():
            for at in range(0, len(piece), size):
                handler.chunk(piece[at:at + size])
                time.sleep(seconds)
        handler.last_chunk()
    return act


def then_garbage(garbage, after_lines=0):
    """So many lines of the server's answer, then that."""
    def act(handler, forward):
        lines = 0
        for piece in forward() if after_lines else [b""]:
            handler.chunk(piece)
            lines += piece.count(b"\n")
            if lines >= after_lines:
                break
        if not after_lines:
            handler.begin(200, "application/json")
        handler.chunk(garbage)
        handler.last_chunk()
    return act


def silence(seconds):
    """No answer for this time."""
    def act(handler, forward):
        handler.owner.stopping.wait(seconds)
        handler.close()
    return act


def stuck():
    """The head of an answer, and no byte more on a connection that stays open."""
    def act(handler, forward):
        handler.begin(200, "application/json")
        handler.owner.stopping.wait()
        handler.close()
    return act


def late(seconds):
    """The server's answer, so much later."""
    def act(handler, forward):
        handler.owner.stopping.wait(seconds)
        for piece in forward():
            handler.chunk(piece)
        handler.last_chunk()
    return act


def lost():
    """The server does it, and its answer never comes."""
    def act(handler, forward):
        handler.begin = lambda *_: None
        for _ in forward():
            pass
        handler.close()
    return act


def status(code, reason):
    """The API server's own refusal."""
    return answer(code, json.dumps({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
                                    "message": f"a fault of the test: {reason}", "metadata": {}}).encode())


def raw(data):
    """Bytes that need not be HTTP."""
    def act(handler, forward):
        handler.wfile.write(data)
        handler.close()
    return act


class ApiProxy:
    def __init__(self, cluster):
        self.cluster = cluster
        self.faults, self.requests, self.open = [], [], set()
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # head and body are two writes, and the second would wait 40 ms for an ACK
            owner = outer

            def setup(self):
                super().setup()
                with outer.lock:
                    outer.open.add(self.connection)

            def finish(self):
                with outer.lock:
                    outer.open.discard(self.connection)
                super().finish()

            def handle_any(self):
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                with outer.lock:
                    outer.requests.append((time.monotonic(), self.command, self.path, self.headers["authorization"]))
                try:
                    outer.act(self, body)
                except (OSError, http.client.HTTPException):
                    self.close()

            do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = handle_any

            def begin(self, status, content_type):
                self.begun = True
                self.send_response(status)
                self.send_header("content-type", content_type)
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()

            def chunk(self, data):
                if data:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

            def last_chunk(self):
                self.wfile.write(b"0\r\n\r\n")

            def close(self):
                self.close_connection = True
                try:
                    self.connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def handle_error(self, *_):
                pass  # clients that go away are what this is for

        self.http = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        self.kubeconfig = cluster.write_kubeconfig(f"proxy-{self.http.server_address[1]}", {}, self.url)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.http.shutdown()
        self.http.server_close()

    def fault(self, method, part, action, times=1, after=0):
        with self.lock:
            self.faults.append([method, part, action, times, after])

    def no_faults(self):
        with self.lock:
            self.faults.clear()

    def unmet(self):
        """Faults that no request has met yet."""
        with self.lock:
            return [fault for fault in self.faults if fault[3] != 0]

    def seen(self, method, part):
        with self.lock:
            return [when for when, m, path, _ in self.requests if m == method and part in path]

    def break_connections(self):
        """All that stand now, from one moment to the next."""
        with self.lock:
            for connection in self.open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def next_fault(self, method, path):
        with self.lock:
            for fault in self.faults:
                if fault[0] not in (None, method) or fault[1] not in path or fault[3] == 0:
                    continue
                fault[4] -= 1
                if fault[4] < 0:
                    if fault[3]:
                        fault[3] -= 1
                    return fault[2]
        return None

    def act(self, handler, body):
        def forward():
            """Pieces of the server's answer as they come, its head sent on first."""
            tls = ssl.create_default_context(cafile=self.cluster.pki.path("ca.crt"))
            if not handler.headers["authorization"]:
                tls.load_cert_chain(self.cluster.pki.path("admin.crt"), self.cluster.pki.path("admin.key"))
            server = http.client.HTTPSConnection("127.0.0.1", self.cluster.port, context=tls, timeout=660)
            try:
                headers = {k: v for k, v in handler.headers.items() if k.lower() not in ("host", "content-length")}
                server.request(handler.command, handler.path, body=body or None, headers=headers)
                reply = server.getresponse()
                handler.begin(reply.status, reply.headers["content-type"])
                while piece := reply.read1(65536):
                    yield piece
            finally:
                server.close()

        action = self.next_fault(handler.command, handler.path)
        (action or crumbs(1 << 20))(handler, forward)
