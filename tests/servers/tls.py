# SPDX-License-Identifier: Apache-2.0
"""A test authority and its certificates, in a directory, by openssl."""

import subprocess


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


class Authority:
    def __init__(self, folder, name="an authority of our own"):
        self.folder = folder
        self.certificate, self.key = folder / "ca.pem", folder / "ca.key"
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                "-addext", "keyUsage=critical,keyCertSign", "-keyout", self.key, "-out", self.certificate)

    @property
    def pem(self):
        return self.certificate.read_text()

    def sign(self, address):
        """(certificate, key) of a server at this IP address."""
        certificate, key, request = (self.folder / f"{address}.{end}" for end in ("pem", "key", "csr"))
        extensions = self.folder / "extensions"
        extensions.write_text(f"subjectAltName=IP:{address}\nbasicConstraints=CA:FALSE\n")
        openssl("req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={address}", "-keyout", key, "-out", request)
        openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial",
                "-days", "2", "-extfile", extensions, "-out", certificate)
        return str(certificate), str(key)
