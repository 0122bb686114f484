# SPDX-License-Identifier: Apache-2.0
"""Everyone who gives credentials, and a store that only looks at them, in one process: Google's token server, STS, IAM
and metadata server; AWS's STS, container endpoint and instance metadata. Each checks what the real one checks: tokens of
Kubernetes by the keys that the API server publishes, their issuer, audience, subject and times. Real ones exist only
inside the clouds; what they want is in their manuals, and in docs/object-stores.md and docs/identity.md.

Misbehaves on order: `fail_with`, `late`, `truncate`, `clock_offset`, `expires_in`."""

import base64
import email.utils
import hashlib
import hmac
import http.server
import json
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils

IMDS_TOKEN = "imds-session"
ACCESS_KEY, SECRET_KEY = "ASIAEXAMPLE", "fetched-secret"
ROLE = "node-role"


def signature(secret, scope, text):
    """Of Signature Version 4, as its manual has it."""
    key = f"AWS4{secret}".encode()
    for part in (*scope.split("/"), text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key.hex()


def unpad(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Refused(Exception):
    """In the words of the server."""


class Sts:
    """`given` counts what was given out; `seen` holds the Authorization and session token of each store request."""

    def __init__(self, host="127.0.0.1", port=0):
        self.issuer, self.keys_by_id = None, {}
        self.roles = {}           # ARN -> {"sub": subject, "aud": audience}
        self.assumable = {}       # ARN -> the external ID that its trust policy demands of the holder of our keys
        self.providers = {}       # a WIF provider's name -> the audience that it accepts
        self.workload_users = {}  # a Google service account -> the subjects that may impersonate it
        self.associations = {}    # the subject of a service account -> the role that EKS has associated it with
        self.container_tokens = set()
        self.federated = {}       # a federated token -> its subject
        self.granted = []         # (kind, subject)
        self.clock_offset = 0     # seconds that this server's clock is ahead
        self.truncate = False     # the answer ends in its middle
        self.late = 0             # seconds before each answer
        self.lock = threading.Lock()
        self.public_key = None
        self.expires_in = 3600
        self.session_tokens = set()  # of assumed roles
        self.given = 0
        self.seen = []
        self.page_seconds = 0
        self.pages = 1
        self.refuse_tokens = set()
        self.fail_with = None  # (status, document[, headers]) instead of credentials
        self.fail_times = None  # so often; None: always
        self.requests = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # head and body are two writes, and the second would wait 40 ms for an ACK

            def handle_any(self):
                length = int(self.headers.get("content-length") or 0)
                body = self.rfile.read(length)
                status, answer, *more = outer.answer(self.command, self.path, self.headers, body)
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                for name, value in (more[0] if more else {}).items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data[:len(data) // 2] if outer.truncate else data)
                self.close_connection |= outer.truncate

            def date_time_string(self, timestamp=None):
                return email.utils.formatdate(outer.now(), usegmt=True)

            do_GET = do_PUT = do_POST = do_HEAD = handle_any

            def log_message(self, *_):
                pass

        self.handler, self.listeners = Handler, []
        self.host = f"{f'[{host}]' if ':' in host else host}:{self.listen(host, port)}"
        self.url = f"http://{self.host}"

    def listen(self, host, port):
        """At one more address, in the network of the calling thread. Returns the port."""
        class Http(http.server.ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        listener = Http((host, port), self.handler)
        self.listeners.append(listener)
        threading.Thread(target=listener.serve_forever, args=(0.02,), daemon=True).start()
        return listener.server_address[1]

    def stop(self):
        for listener in self.listeners:
            listener.shutdown()
            listener.server_close()

    def now(self):
        return time.time() + self.clock_offset

    def next_token(self):
        with self.lock:
            self.given += 1
            return f"token-{self.given}"

    # ---- tokens of Kubernetes

    def trust(self, configuration, key_set):
        """As a cloud does when a cluster is registered: by the documents of its API server (/.well-known/openid-configuration
        and /openid/v1/jwks), never by its key files."""
        self.issuer = configuration["issuer"]
        self.keys_by_id = {}
        for key in key_set["keys"]:
            assert key["kty"] == "EC" and key["crv"] == "P-256" and key["alg"] == "ES256", key
            x, y = (int.from_bytes(unpad(key[c]), "big") for c in "xy")
            self.keys_by_id[key["kid"]] = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()

    def claims(self, token, audience):
        try:
            head, claims, signature = token.split(".")
            header, signature = json.loads(unpad(head)), unpad(signature)
            r, s = (int.from_bytes(half, "big") for half in (signature[:32], signature[32:]))
            self.keys_by_id[header["kid"]].verify(utils.encode_dss_signature(r, s), f"{head}.{claims}".encode(),
                                                  ec.ECDSA(hashes.SHA256()))
            claims = json.loads(unpad(claims))
        except (ValueError, KeyError, InvalidSignature) as why:
            raise Refused(f"the token's signature is not valid: {type(why).__name__}") from why
        if claims["iss"] != self.issuer:
            raise Refused(f"the issuer {claims['iss']} is not trusted")
        if audience not in (claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]):
            raise Refused("the audience does not match")
        if not claims["nbf"] - 60 <= self.now() < claims["exp"]:
            raise Refused("the token is expired or not yet valid")
        return claims

    def answer(self, method, path, headers, body):
        where = urllib.parse.urlsplit(path).path
        self.requests.append((method, where))
        time.sleep(self.late)
        if where.startswith("/storage/v1") or where.startswith("/bucket"):
            return self.store(path, headers)
        if self.fail_with and self.fail_times != 0:
            self.fail_times = None if self.fail_times is None else self.fail_times - 1
            return self.fail_with
        routes = {("POST", "/token"): self.google_token, ("POST", "/v1/token"): self.google_sts,
                  ("GET", "/computeMetadata/v1/instance/service-accounts/default/token"): self.google_metadata,
                  ("POST", "/"): self.aws_sts, ("GET", "/v1/credentials"): self.container,
                  ("PUT", "/latest/api/token"): self.imds_session,
                  ("GET", "/latest/meta-data/iam/security-credentials/"): self.imds_role,
                  ("GET", f"/latest/meta-data/iam/security-credentials/{ROLE}"): self.imds_keys}
        handler = routes.get((method, where))
        if method == "POST" and where.endswith(":generateAccessToken"):
            return self.google_impersonation(where, headers, body)
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
        if self.issuer:
            return self.google_federation(headers, asked)
        want = {"grantType": "urn:ietf:params:oauth:grant-type:token-exchange", "audience": "//iam/pool/provider",
                "requestedTokenType": "urn:ietf:params:oauth:token-type:access_token",
                "subjectTokenType": "urn:ietf:params:oauth:token-type:jwt", "subjectToken": "subject"}
        ok = all(asked.get(k) == v for k, v in want.items())
        return self.bearer() if ok else (400, {"error": "invalid_request"})

    def google_federation(self, headers, asked):
        want = {"grantType": "urn:ietf:params:oauth:grant-type:token-exchange",
                "scope": "https://www.googleapis.com/auth/cloud-platform",
                "requestedTokenType": "urn:ietf:params:oauth:token-type:access_token",
                "subjectTokenType": "urn:ietf:params:oauth:token-type:jwt"}
        if headers["content-type"] != "application/json" or any(asked.get(k) != v for k, v in want.items()):
            return 400, {"error": "invalid_request", "error_description": "not a token exchange"}
        audience = asked["audience"]
        kind, _, rest = audience.partition(":")
        pool, _, cluster = rest.partition(":")
        if kind == "identitynamespace" and cluster.startswith("https://container.googleapis.com/v1/projects/"):
            expected = pool
        elif audience in self.providers:
            expected = self.providers[audience]
        else:
            return 400, {"error": "invalid_target", "error_description": f"no such provider: {audience}"}
        try:
            subject = self.claims(asked["subjectToken"], expected)["sub"]
        except Refused as why:
            return 400, {"error": "invalid_grant", "error_description": str(why)}
        status, answer = self.bearer()
        self.federated[answer["access_token"]] = subject
        self.granted.append(("federation", subject))
        return status, {**answer, "issued_token_type": want["requestedTokenType"]}

    def google_impersonation(self, where, headers, body):
        account = urllib.parse.unquote(where.removeprefix("/v1/projects/-/serviceAccounts/").removesuffix(":generateAccessToken"))
        subject = self.federated.get((headers["authorization"] or "").removeprefix("Bearer "))
        if subject is None:
            return 401, {"error": {"code": 401, "status": "UNAUTHENTICATED", "message": "invalid authentication"}}
        if subject not in self.workload_users.get(account, ()):
            return 403, {"error": {"code": 403, "status": "PERMISSION_DENIED",
                                   "message": "Permission 'iam.serviceAccounts.getAccessToken' denied on resource"}}
        asked = json.loads(body)
        if asked != {"scope": ["https://www.googleapis.com/auth/devstorage.full_control"], "lifetime": "3600s"}:
            return 400, {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "scope or lifetime"}}
        self.granted.append(("impersonation", account))
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.now() + self.expires_in))
        return 200, {"accessToken": self.next_token(), "expireTime": until}

    def google_metadata(self, headers, body):
        return self.bearer() if headers["metadata-flavor"] == "Google" else (403, b"Missing Metadata-Flavor:Google header.")

    # ---- AWS

    def keys(self):
        expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.now() + self.expires_in))
        return {"AccessKeyId": ACCESS_KEY, "SecretAccessKey": SECRET_KEY, "Token": self.next_token(), "Expiration": expires}

    def aws_sts(self, headers, body):
        form = dict(urllib.parse.parse_qsl(body.decode(), strict_parsing=True))
        if form["Action"] == "AssumeRole":
            return self.aws_assume_signed(headers, form, body)
        if self.issuer:
            return self.aws_assume(headers, form)
        want = {"Action": "AssumeRoleWithWebIdentity", "Version": "2011-06-15", "RoleArn": "arn:aws:iam::1:role/r",
                "WebIdentityToken": "web+identity/token="}
        if any(form.get(k) != v for k, v in want.items()) or not form.get("RoleSessionName"):
            return 400, (b"<ErrorResponse><Error><Type>Sender</Type><Code>InvalidIdentityToken</Code>"
                         b"<Message>not one of mine</Message></Error></ErrorResponse>")
        return self.aws_credentials()

    @staticmethod
    def aws_refuse(status, code, words):
        return status, (f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{words}</Message></Error>"
                        "</ErrorResponse>").encode()

    def aws_assume_signed(self, headers, form, body):
        """AssumeRole by the role whose keys the container endpoint gave: signature, session token, external ID."""
        if not self.is_signed("sts", "POST", "/", headers, hashlib.sha256(body).hexdigest()):
            return self.aws_refuse(403, "SignatureDoesNotMatch", "The request signature we calculated does not match")
        if headers["x-amz-security-token"] not in self.container_tokens:
            return self.aws_refuse(403, "InvalidClientTokenId", "The security token included in the request is invalid")
        if self.assumable.get(form["RoleArn"]) != form.get("ExternalId") or form["Version"] != "2011-06-15":
            return self.aws_refuse(403, "AccessDenied", "is not authorized to perform: sts:AssumeRole")
        self.granted.append((form["RoleArn"], form["ExternalId"]))
        return self.aws_credentials()

    def is_signed(self, service, method, target, headers, body_hash):
        """By our keys, with a session token among the signed headers."""
        _, _, rest = headers["authorization"].partition("AWS4-HMAC-SHA256 ")
        said = dict(part.strip().split("=", 1) for part in rest.split(","))
        key_id, _, scope = said["Credential"].partition("/")
        names = said["SignedHeaders"].split(";")
        path, _, query = target.partition("?")
        canonical = "\n".join([method, path, "&".join(sorted(filter(None, query.split("&")))),
                               *(f"{n}:{headers[n].strip()}" for n in names), "", said["SignedHeaders"], body_hash])
        text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, hashlib.sha256(canonical.encode()).hexdigest()])
        today = time.strftime("%Y%m%d", time.gmtime(self.now()))
        return key_id == ACCESS_KEY and scope.split("/")[0] == today and scope.split("/")[2:] == [service, "aws4_request"] \
            and {"host", "x-amz-date", "x-amz-security-token"} <= set(names) \
            and signature(SECRET_KEY, scope, text) == said["Signature"]

    def aws_assume(self, headers, form):
        """The role's trust policy, as IAM evaluates it."""
        refuse = self.aws_refuse
        if form.get("Action") != "AssumeRoleWithWebIdentity" or form.get("Version") != "2011-06-15":
            return refuse(400, "InvalidAction", "no such action")
        if not 900 <= int(form.get("DurationSeconds", 3600)) <= 3600 or not 2 <= len(form.get("RoleSessionName", "")) <= 64:
            return refuse(400, "ValidationError", "DurationSeconds or RoleSessionName")
        policy = self.roles.get(form.get("RoleArn"))
        try:
            subject = self.claims(form.get("WebIdentityToken", ""), policy["aud"] if policy else "sts.amazonaws.com")["sub"]
        except Refused as why:
            return refuse(400, "InvalidIdentityToken", str(why))
        if policy is None or policy["sub"] != subject:
            return refuse(403, "AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity")
        self.granted.append((form["RoleArn"], subject))
        return self.aws_credentials()

    def aws_credentials(self):
        keys = self.keys()
        self.session_tokens.add(keys["Token"])
        inner = "".join(f"<{'SessionToken' if k == 'Token' else k}>{v}</{'SessionToken' if k == 'Token' else k}>"
                        for k, v in keys.items())
        return 200, ("<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">"
                     f"<AssumeRoleWithWebIdentityResult><Credentials>{inner}</Credentials>"
                     "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>").encode()

    def container(self, headers, body):
        """The agent of EKS Pod Identity: with associations, the token is a pod's own, as the kubelet gives it."""
        said = headers["authorization"] or ""
        try:
            if self.associations:
                subject = self.claims(said, "pods.eks.amazonaws.com")["sub"]
                if subject not in self.associations:
                    raise Refused(f"{subject} has no association")
            elif said != "container-token":
                raise Refused("this token is not known")
        except Refused as why:
            return 401, str(why).encode()
        keys = self.keys()
        self.container_tokens.add(keys["Token"])
        return 200, keys

    def imds_session(self, headers, body):
        ttl = headers["x-aws-ec2-metadata-token-ttl-seconds"]
        return (200, IMDS_TOKEN.encode()) if ttl and 1 <= int(ttl) <= 21600 else (400, b"")

    def imds_role(self, headers, body):
        return (200, ROLE.encode()) if headers["x-aws-ec2-metadata-token"] == IMDS_TOKEN else (401, b"")

    def imds_keys(self, headers, body):
        return (200, {"Code": "Success", **self.keys()}) if headers["x-aws-ec2-metadata-token"] == IMDS_TOKEN else (401, b"")

    # ---- a store that lists nothing, in a given number of pages

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
