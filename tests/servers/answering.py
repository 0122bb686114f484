# SPDX-License-Identifier: Apache-2.0
"""A server that gives the answers of a test, and records its requests."""

import http.server
import threading
import types


class Answering:
    """with Answering(lambda request: (200, {"etag": "e"}, b"body")) as server: ... server.url, server.seen

    A request has its method, path, headers (names in lower case) and body. Requests are answered side by side."""

    def __init__(self, answer, host="127.0.0.1", port=0):
        self.seen = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # head and body are two writes, and the second would wait 40 ms for an ACK

            def handle_any(self):
                headers = {k.lower(): v for k, v in self.headers.items()}
                body = self.rfile.read(int(headers.get("content-length", 0)))
                request = types.SimpleNamespace(method=self.command, path=self.path, headers=headers, body=body)
                outer.seen.append(request)
                status, fields, content = answer(request)
                length = {} if status == 204 else {"content-length": str(len(content))}
                self.send_response_only(status)
                for name, value in ({"date": self.date_time_string()} | length | fields).items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer((host, port), Handler)
        self.port = self.http.server_address[1]
        self.url = f"http://{host}:{self.port}"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()
