# SPDX-License-Identifier: Apache-2.0
"""A call to the broker as a Job makes it: to its Service, by its own certificates."""

import http.client
import json
import socket
import ssl

from .ours import NAMESPACE


def bundle(cluster):
    return cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/cistern-broker-ca")["data"]["ca.crt"]


def address(cluster):
    return cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/services/cistern-broker")["spec"]["clusterIP"]


def ask(cluster, token, volume, purpose="hydrate"):
    """The answer's status and document."""
    tls = ssl.create_default_context(cadata=bundle(cluster))
    connection = http.client.HTTPConnection(address(cluster), 443)
    connection.sock = tls.wrap_socket(socket.create_connection((address(cluster), 443), 20),
                                      server_hostname=f"cistern-broker.{NAMESPACE}.svc")
    connection.request("POST", "/v1/credentials", json.dumps({"volume": volume, "for": purpose}),
                       {"Authorization": f"Bearer {token}", "Content-Type": "application/json"})
    reply = connection.getresponse()
    return reply.status, json.loads(reply.read())
