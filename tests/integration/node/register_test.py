# SPDX-License-Identifier: Apache-2.0
"""How the kubelet learns of the driver, and keeps it while drivers come and go."""
import contextlib
import socket
import subprocess
import time

import grpc

from integration.csi.driver import Client, capability, wait_for

from .agent import Kubelet, Node, hold_true, registration, registration_grpc

Code = grpc.StatusCode


def registration_socket(node):
    return node.plugins / "csi.cistern.io-reg.sock"


def is_confirmed(node):
    return registration_socket(node).stat().st_mode & 0o777 == 0o700


@contextlib.contextmanager
def read_only(folder):
    """No file can be created in it."""
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def await_confirmation(node, seconds=30):
    """The driver counts on the kubelet's knowledge from now on."""
    wait_for(lambda: is_confirmed(node), seconds)


def register_with_a_kubelet_that_ends(node, **options):
    """A kubelet registers the driver, and ends."""
    kubelet = Kubelet(node.plugins, **options)
    kubelet.wait_for_driver()
    await_confirmation(node)
    kubelet.stop()


def roll(node, folder, log="cisternd-2.log"):
    """Another driver, which starts before this one ends."""
    new = Node(folder, keeper=node.keeper, log=log).start()
    assert node.stop() == 0
    return new


def calls_all_the_time(client):
    client.call("NodeGetCapabilities", timeout=5)
    return True


def test_the_kubelet_finds_the_driver_and_learns_the_node(node, kubelet):
    kubelet.wait_for_driver()
    assert kubelet.history == [("registered", "csi.cistern.io", "node-1")]
    assert kubelet.drivers["csi.cistern.io"][0] == str(node.socket)


def test_a_driver_that_ends_alone_is_unregistered(node, kubelet):
    kubelet.wait_for_driver()
    node.stop()
    wait_for(lambda: not kubelet.drivers)
    assert list(node.plugins.iterdir()) == [] and not node.socket.exists()


def test_a_driver_that_kept_the_registration_of_another_removes_it_when_it_ends_alone(node, kubelet, folder):
    kubelet.wait_for_driver()
    await_confirmation(node)
    new = roll(node, folder)
    hold_true(lambda: kubelet.drivers, 2)
    assert len(kubelet.history) == 1, kubelet.history
    assert new.stop() == 0
    wait_for(lambda: not kubelet.drivers)
    assert list(node.plugins.iterdir()) == [] and not node.socket.exists()


def test_a_node_offers_identity_and_node_and_says_how_many_volumes_it_takes(node):
    info = node.client.call("NodeGetInfo")
    assert info.max_volumes_per_node == 1024
    assert dict(info.accessible_topology.segments) == {"topology.cistern.io/node": "node-1"}
    code, _ = node.client.fails("CreateVolume", name="a")
    assert code == Code.UNIMPLEMENTED
    services = {c.service.type for c in node.client.call("GetPluginCapabilities").capabilities if c.HasField("service")}
    assert services == {2}  # VOLUME_ACCESSIBILITY_CONSTRAINTS


def test_a_volume_of_a_pool_that_is_not_here_is_said_to_be_absent_and_lets_its_pod_go(node, folder):
    lost = "v1-0123456789ab-0123456789ab"
    node.staging(lost).mkdir(parents=True)
    code, text = node.client.fails("NodeStageVolume", volume_id=lost, volume_capability=capability(),
                                   staging_target_path=str(node.staging(lost)))
    assert code == Code.FAILED_PRECONDITION and "CIS3001" in text and "mount the disk of the volume's pool" in text
    target = node.target(lost)
    target.mkdir(parents=True)
    node.unpublish(lost)
    assert not target.exists()
    node.unstage(lost)


def test_in_a_roll_the_kubelet_never_loses_the_driver(node, kubelet, folder):
    kubelet.wait_for_driver()
    await_confirmation(node)
    caller = Client(node.socket)
    nodes = [node]
    for turn in range(2):
        new = Node(folder, keeper=node.keeper, log=f"cisternd-{turn}.log").start()
        hold_true(lambda: calls_all_the_time(caller), 1.5)
        assert nodes[-1].stop() == 0
        nodes.append(new)
        hold_true(lambda: calls_all_the_time(caller) and kubelet.drivers, 1)
    caller.close()
    hold_true(lambda: kubelet.drivers, 5)
    assert kubelet.history == [("registered", "csi.cistern.io", "node-1")]
    assert nodes[-1].stop() == 0


def test_a_kubelet_that_was_restarted_after_a_roll_finds_the_driver(node, folder):
    register_with_a_kubelet_that_ends(node)
    new = roll(node, folder)
    time.sleep(1.5)  # no process replies at the old registration, and none has to
    kubelet = Kubelet(node.plugins)
    kubelet.wait_for_driver(5)
    kubelet.stop()
    assert new.stop() == 0


def test_a_kubelet_of_which_nothing_else_is_seen_finds_the_driver_after_a_silence(node, folder):
    register_with_a_kubelet_that_ends(node, makes_its_socket=False)
    new = roll(node, folder)
    kubelet = Kubelet(node.plugins, makes_its_socket=False)
    kubelet.wait_for_driver(20)
    kubelet.stop()
    assert new.stop() == 0


def test_a_roll_between_the_start_of_a_kubelet_and_its_question_loses_nothing(node, folder):
    register_with_a_kubelet_that_ends(node)
    kubelet = Kubelet(node.plugins, asks=False)
    time.sleep(1.5)  # the driver sees that the kubelet is another
    new = roll(node, folder)
    kubelet.asks.set()
    kubelet.wait_for_driver(10)
    kubelet.stop()
    assert new.stop() == 0


def test_a_roll_while_a_kubelet_asks_for_the_second_time_loses_nothing(node, folder):
    register_with_a_kubelet_that_ends(node)
    new = roll(node, folder)
    kubelet = Kubelet(node.plugins, hesitates=True)  # asks at the old socket, and finds that there is a new one
    wait_for(lambda: len(kubelet.history) == 2)
    assert [h[0] for h in kubelet.history] == ["registered", "unregistered"]
    newest = roll(new, folder, "cisternd-3.log")
    kubelet.asks.set()
    kubelet.wait_for_driver(15)
    kubelet.stop()
    assert newest.stop() == 0


def test_a_registration_that_no_kubelet_has_confirmed_does_not_outlive_its_driver(folder):
    node = Node(folder)
    kubelet = Kubelet(node.plugins, asks=False)  # it runs since before the publication
    node.start()
    wait_for(lambda: list(node.plugins.glob("[!.]*")))
    new = roll(node, folder)
    kubelet.asks.set()
    kubelet.wait_for_driver(10)
    kubelet.stop()
    assert new.stop() == 0
    node.clean_up()


def test_the_probes_of_the_pod_do_not_count_as_calls_of_a_kubelet(node, folder):
    register_with_a_kubelet_that_ends(node, makes_its_socket=False)
    new = roll(node, folder)
    kubelet = Kubelet(node.plugins, makes_its_socket=False)
    probe = Client(new.socket)
    wait_for(lambda: probe.call("Probe", timeout=5) and "csi.cistern.io" in kubelet.drivers, 20)
    probe.close()
    kubelet.stop()
    assert new.stop() == 0


def test_a_driver_that_was_killed_and_comes_back_is_still_known(kubelet, node):
    kubelet.wait_for_driver()
    await_confirmation(node)
    node.kill()
    node.start()
    hold_true(lambda: kubelet.drivers, 5)
    assert kubelet.history == [("registered", "csi.cistern.io", "node-1")]


def test_a_kubelet_that_said_no_is_asked_again(folder):
    node = Node(folder)
    kubelet = Kubelet(node.plugins, refuse=1)
    node.start()
    wait_for(lambda: "csi.cistern.io" in kubelet.drivers)
    assert [h[0] for h in kubelet.history] == ["refused", "registered"]
    assert "refuses the driver" in node.log_text()
    kubelet.stop()
    node.stop()
    node.clean_up()


def test_a_publication_that_fails_after_a_refusal_is_repeated(folder):
    node = Node(folder)
    kubelet = Kubelet(node.plugins, refuse=1000)
    node.start()
    wait_for(lambda: "refuses the driver" in node.log_text())
    with read_only(node.plugins):
        wait_for(lambda: "cannot be published" in node.log_text())
        kubelet.refuse = 0
    kubelet.wait_for_driver(60)
    kubelet.stop()
    node.stop()
    node.clean_up()


def test_a_kubelet_that_asks_again_has_not_confirmed(node, kubelet):
    kubelet.wait_for_driver()
    with grpc.insecure_channel(f"unix:{registration_socket(node)}") as channel:
        registration_grpc.RegistrationStub(channel).GetInfo(registration.InfoRequest(), timeout=5)
        hold_true(lambda: not is_confirmed(node), 13)


def test_a_removed_registration_is_published_again(node, kubelet):
    kubelet.wait_for_driver()
    next(node.plugins.iterdir()).unlink()
    wait_for(lambda: len([h for h in kubelet.history if h[0] == "registered"]) == 2)


def test_a_driver_whose_socket_is_gone_is_not_alive(folder):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    node = Node(folder, flags=[f"--metrics=127.0.0.1:{port}"]).start()

    def health():
        with socket.create_connection(("127.0.0.1", port), timeout=5) as s:
            s.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            return s.makefile("rb").readline().split()[1]
    assert health() == b"200"
    node.socket.unlink()
    assert health() == b"503"
    node.stop()
    node.clean_up()
