# SPDX-License-Identifier: Apache-2.0
"""Everyone who gives credentials, and a store that only looks at them, in one process: Google's token server, STS and
metadata server; AWS's STS, container endpoint and instance metadata. Each checks what the real one checks. Real ones
exist only inside the clouds; what they want is in their manuals, and in docs/object-stores.md."""

import base64
import http.server
import json
import subprocess
import tempfile
import threading
import time
import urllib.parse

IMDS_TOKEN = "imds-session"
ROLE = "node-role"


def unpad(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Identity:
    """`tokens` counts what was given out; `seen` holds the Authorization and session token of each store request."""

    def __init__(self):
        self.public_key = None
        self.expires_in = 3600
        self.given = 0
        self.seen = []
        self.page_seconds = 0
        self.pages = 1
        self.refuse_tokens = set()
        self.fail_with = None  # (status, document) instead of credentials
        self.requests = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self):
                length = int(self.headers.get("content-length") or 0)
                body = self.rfile.read(length)
                status, answer = outer.answer(self.command, self.path, self.headers, body)
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            do_GET = do_PUT = do_POST = do_HEAD = handle_any

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.http.server_address[1]}"
        self.url = f"http://{self.host}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def stop(self):
        self.http.shutdown()
        self.http.server_close()

    def next_token(self):
        self.given += 1
        return f"token-{self.given}"

    def answer(self, method, path, headers, body):
        where = urllib.parse.urlsplit(path).path
        self.requests.append((method, where))
        if where.startswith("/storage/v1") or where.startswith("/bucket"):
            return self.store(path, headers)
        if self.fail_with:
            return self.fail_with
        routes = {("POST", "/token"): self.google_token, ("POST", "/v1/token"): self.google_sts,
                  ("GET", "/computeMetadata/v1/instance/service-accounts/default/token"): self.google_metadata,
                  ("POST", "/"): self.aws_sts, ("GET", "/v1/credentials"): self.container,
                  ("PUT", "/latest/api/token"): self.imds_session,
                  ("GET", "/latest/meta-data/iam/security-credentials/"): self.imds_role,
                  ("GET", f"/latest/meta-data/iam/security-credentials/{ROLE}"): self.imds_keys}
        handler = routes.get((method, where))
        return handler(headers, body) if handler else (404, b"no such thing")

    # ---- Google

    def bearer(self):
        return 200, {"access_token": self.next_token(), "expires_in": self.expires_in, "token_type": "Bearer"}

    def google_token(self, headers, body):
        assert headers["content-type"] == "application/x-www-form-urlencoded"
        form = dict(urllib.parse.parse_qsl(body.decode(), strict_parsing=True))
        if form["grant_type"] == "refresh_token":
            ok = (form["client_id"], form["client_secret"], form["refresh_token"]) == ("id", "client-secret", "refresh")
            return self.bearer() if ok else (400, {"error": "invalid_grant", "error_description": "Bad Request"})
        if form["grant_type"] != "urn:ietf:params:oauth:grant-type:jwt-bearer":
            return 400, {"error": "unsupported_grant_type"}
        return self.check_assertion(form["assertion"])

    def check_assertion(self, assertion):
        head, claims, signature = assertion.split(".")
        with tempfile.NamedTemporaryFile() as f:
            f.write(unpad(signature))
            f.flush()
            valid = subprocess.run(["openssl", "dgst", "-sha256", "-verify", self.public_key, "-signature", f.name],
                                   input=f"{head}.{claims}".encode(), capture_output=True).returncode == 0
        header, claims = json.loads(unpad(head)), json.loads(unpad(claims))
        now = time.time()
        if not valid or header["alg"] != "RS256" or header["kid"] != "key-1":
            return 400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
        if claims["aud"] != f"{self.url}/token" or claims["iss"] != "robot@project.iam.gserviceaccount.com":
            return 400, {"error": "invalid_grant", "error_description": "Invalid JWT."}
        if abs(claims["iat"] - now) > 60 or not 0 < claims["exp"] - claims["iat"] <= 3600:
            return 400, {"error": "invalid_grant", "error_description": "Invalid JWT: iat and exp"}
        if not claims["scope"].startswith("https://www.googleapis.com/auth/"):
            return 400, {"error": "invalid_scope"}
        return self.bearer()

    def google_sts(self, headers, body):
        asked = json.loads(body)
        want = {"grantType": "urn:ietf:params:oauth:grant-type:token-exchange", "audience": "//iam/pool/provider",
                "requestedTokenType": "urn:ietf:params:oauth:token-type:access_token",
                "subjectTokenType": "urn:ietf:params:oauth:token-type:jwt", "subjectToken": "subject"}
        ok = all(asked.get(k) == v for k, v in want.items())
        return self.bearer() if ok else (400, {"error": "invalid_request"})

    def google_metadata(self, headers, body):
        return self.bearer() if headers["metadata-flavor"] == "Google" else (403, b"Missing Metadata-Flavor:Google header.")

    # ---- AWS

    def keys(self):
        expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + self.expires_in))
        return {"AccessKeyId": "ASIAEXAMPLE", "SecretAccessKey": "fetched-secret", "Token": self.next_token(),
                "Expiration": expires}

    def aws_sts(self, headers, body):
        form = dict(urllib.parse.parse_qsl(body.decode(), strict_parsing=True))
        want = {"Action": "AssumeRoleWithWebIdentity", "Version": "2011-06-15", "RoleArn": "arn:aws:iam::1:role/r",
                "WebIdentityToken": "web+identity/token="}
        if any(form.get(k) != v for k, v in want.items()) or not form.get("RoleSessionName"):
            return 400, (b"<ErrorResponse><Error><Type>Sender</Type><Code>InvalidIdentityToken</Code>"
                         b"<Message>not one of mine</Message></Error></ErrorResponse>")
        keys = self.keys()
        inner = "".join(f"<{'SessionToken' if k == 'Token' else k}>{v}</{'SessionToken' if k == 'Token' else k}>"
                        for k, v in keys.items())
        return 200, ("<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">"
                     f"<AssumeRoleWithWebIdentityResult><Credentials>{inner}</Credentials>"
                     "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>").encode()

    def container(self, headers, body):
        return (200, self.keys()) if headers["authorization"] == "container-token" else (401, b"")

    def imds_session(self, headers, body):
        ttl = headers["x-aws-ec2-metadata-token-ttl-seconds"]
        return (200, IMDS_TOKEN.encode()) if ttl and 1 <= int(ttl) <= 21600 else (400, b"")

    def imds_role(self, headers, body):
        return (200, ROLE.encode()) if headers["x-aws-ec2-metadata-token"] == IMDS_TOKEN else (401, b"")

    def imds_keys(self, headers, body):
        return (200, {"Code": "Success", **self.keys()}) if headers["x-aws-ec2-metadata-token"] == IMDS_TOKEN else (401, b"")

    # ---- a store that lists nothing, in as many pages as it is told to

    def store(self, path, headers):
        authorization = headers["authorization"]
        token = headers["x-amz-security-token"] or (authorization or "").removeprefix("Bearer ")
        self.seen.append((authorization, token))
        if token in self.refuse_tokens:
            return 401, {"error": {"code": 401, "message": "Invalid Credentials"}}
        time.sleep(self.page_seconds)
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(path).query))
        page = int(query.get("pageToken") or 0) + 1
        if "list-type" in query:
            return 200, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
        return 200, {"nextPageToken": str(page)} if page < self.pages else {}
