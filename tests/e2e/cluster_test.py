# SPDX-License-Identifier: Apache-2.0
"""The test cluster itself: what the other tests stand on."""

import http.server
import pathlib
import subprocess
import sys
import threading

from e2e.lib import cgroups
from e2e.lib.cluster import HOST, new_folder, remove
from e2e.lib.machine import eventually, loops_on
from paths import TOP

BUSYBOX = {"image": "localhost/busybox:1", "imagePullPolicy": "Never"}


def pod(name, node, *command):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"nodeSelector": {"kubernetes.io/hostname": node}, "terminationGracePeriodSeconds": 1,
                     "containers": [{"name": "main", **BUSYBOX, "command": list(command)}]}}


def test_a_pod_reaches_a_service_whose_pod_is_on_the_other_node(cluster):
    cluster.apply(pod("web", "node-a", "sh", "-c", "mkdir /www; echo from $(hostname) >/www/index.html; "
                                                   "httpd -f -p 8080 -h /www"),
                  pod("near", "node-a", "sleep", "3600"), pod("far", "node-b", "sleep", "3600"),
                  {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
                   "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}})
    for name in ("web", "near", "far"):
        cluster.await_pod(name)
    address = cluster.api.get("/api/v1/namespaces/default/services/web")["spec"]["clusterIP"]
    for name in ("near", "far"):
        eventually(lambda: "from web" in cluster.exec(name, "wget", "-qO-", f"http://{address}"),
                   f"{name} reads from the Service", 20)
    answer = cluster.exec("far", "sh", "-c", "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 2 10.96.0.1 443")
    assert "HTTP request to an HTTPS server" in answer, "the API server, by its Service"
    cluster.kubectl("delete", "pod/web", "pod/near", "service/web", "--wait=false")


def test_a_pod_reaches_a_server_of_the_test(cluster):
    class Hello(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"hello from the test")

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer((HOST, 0), Hello)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        assert "hello from the test" in cluster.exec("far", "wget", "-qO-", f"http://{HOST}:{server.server_port}")
    finally:
        server.shutdown()
        server.server_close()
    cluster.kubectl("delete", "pod/far", "--wait=false")


def test_a_node_that_is_rebooted_runs_its_pods_again_and_has_its_disk(cluster):
    node = cluster.nodes["node-b"]
    node.run("sh", "-c", "echo kept >/mnt/disks/cistern/mark")
    cluster.apply(pod("stays", "node-b", "sleep", "3600"))
    before = cluster.await_pod("stays")["status"]["containerStatuses"][0]["containerID"]
    node.reboot()
    assert node.run("cat", "/mnt/disks/cistern/mark") == "kept\n"
    node.run("rm", "/mnt/disks/cistern/mark")  # a pool is made in an empty directory
    eventually(lambda: cluster.await_pod("stays")["status"]["containerStatuses"][0]["containerID"] != before,
               "the pod runs in a new container", 60)
    cluster.await_nodes()
    cluster.kubectl("delete", "pod/stays", "--wait=false")


def test_killed_run_leaves_nothing_after_the_next_start(cluster):
    script = "import sys; sys.path.insert(0, sys.argv[1]); from e2e.lib import cluster; c = cluster.Cluster().up(); " \
             "print(c.folder, c.control.pid, flush=True); input()"
    other = subprocess.Popen([sys.executable, "-c", script, str(TOP / "tests")], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
    folder, init = other.stdout.readline().split()
    assert loops_on(pathlib.Path(folder) / "node-a/pool.img") and cgroups.names(pathlib.Path(folder).name)
    other.kill()
    other.wait()
    eventually(lambda: not pathlib.Path("/proc", init).exists(), "the other cluster's processes are gone", 20)
    mine, lock = new_folder()
    remove(mine)
    lock.close()
    assert not pathlib.Path(folder).exists() and not cgroups.names(pathlib.Path(folder).name)
    assert folder not in subprocess.run(["losetup", "--list"], capture_output=True, text=True, check=True).stdout
    cluster.check()
