# SPDX-License-Identifier: Apache-2.0
"""The cluster's keys, certificates and kubeconfigs."""

import base64
import subprocess


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


class Pki:
    def __init__(self, folder, server):
        self.folder, self.server = folder, server
        folder.mkdir()
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", folder / "ca.key")
        openssl("req", "-x509", "-new", "-key", folder / "ca.key", "-subj", "/CN=cistern-e2e-ca", "-days", 30, "-out",
                folder / "ca.crt")
        self.key("service-account")
        openssl("ec", "-in", folder / "service-account.key", "-pubout", "-out", folder / "service-account.pub")

    def key(self, name):
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", self.folder / f"{name}.key")

    def certificate(self, name, subject, usage="clientAuth", names=None):
        path = self.folder / name
        self.key(name)
        openssl("req", "-new", "-key", f"{path}.key", "-subj", subject, "-out", f"{path}.csr")
        extensions = ["basicConstraints=critical,CA:FALSE", "keyUsage=critical,digitalSignature",
                      f"extendedKeyUsage={usage}"]
        if names:
            extensions.append(f"subjectAltName={','.join(names)}")
        (self.folder / f"{name}.ext").write_text("\n".join(extensions) + "\n")
        openssl("x509", "-req", "-in", f"{path}.csr", "-CA", self.folder / "ca.crt", "-CAkey", self.folder / "ca.key",
                "-CAcreateserial", "-days", 30, "-extfile", f"{path}.ext", "-out", f"{path}.crt")

    def kubeconfig(self, name, subject):
        """A client certificate, and the kubeconfig that carries it."""
        self.certificate(name, subject)

        def encoded(file):
            return base64.b64encode((self.folder / file).read_bytes()).decode()

        path = self.folder / f"{name}.kubeconfig"
        path.write_text(f"""apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: "{self.server}", certificate-authority-data: {encoded('ca.crt')}}}}}]
users: [{{name: u, user: {{client-certificate-data: {encoded(name + '.crt')}, client-key-data: {encoded(name + '.key')}}}}}]
""")
        return path
