# SPDX-License-Identifier: Apache-2.0
"""CreateVolume and changes of a volume, with a real API server and scripted nodes. Repeated calls give the same order,
whichever controller answers and whichever process is killed in between."""

import concurrent.futures
import signal
import time

import grpc
import pytest

from integration.csi.driver import capability, csi
from integration.lib.control import GIB, NAMESPACE, POOLS, VOLUMES, eventually, make_claim, make_source, new_name, order

Code = grpc.StatusCode


# ---- the order --------------------------------------------------------------------------------------------------------

def test_a_volume_is_ordered_from_the_node_that_was_chosen_and_the_answer_awaited(cluster, nodes, controllers):
    nodes("node-a")
    nodes("node-b", pool_uuid="aaaaaaaaaaaa")
    name = new_name()
    volume = controllers().create(name, node="node-b", parameters={"concurrency": "8"})
    assert volume.volume_id.startswith("v1-aaaaaaaaaaaa-")
    assert volume.capacity_bytes == GIB
    assert volume.accessible_topology[0].segments == {"topology.cistern.io/node": "node-b"}
    made = order(cluster, name)
    assert made["spec"]["nodeName"] == "node-b" and made["spec"]["parameters"] == {"concurrency": "8"}
    assert made["metadata"]["labels"] == {"cistern.io/node": "node-b", "cistern.io/pool": "default"}
    assert made["metadata"]["finalizers"] == ["cistern.io/release"]


def test_topology_without_our_node_is_resource_exhausted(cluster, nodes, controllers):
    nodes()
    controller = controllers()
    zone = csi.Topology(segments={"topology.kubernetes.io/zone": "a"})
    fields = controller.request(new_name(), GIB, None, None, None)
    code, text = controller.client.fails("CreateVolume", **fields, accessibility_requirements=csi.TopologyRequirement(
        requisite=[zone], preferred=[zone]))
    assert code == Code.RESOURCE_EXHAUSTED and "topology.kubernetes.io/zone" in text and "topology.cistern.io/node" in text
    assert controller.client.call("GetCapacity", accessible_topology=zone).available_capacity == 0
    assert controller.client.call("GetCapacity").available_capacity > 0


def test_a_place_that_is_invalid_is_refused_with_its_own_error(cluster, nodes, controllers):
    nodes()
    controller = controllers()
    long, zone = (csi.Topology(segments={key: value}) for key, value in
                  (("topology.cistern.io/node", "n" * 250), ("topology.kubernetes.io/zone", "a")))
    fields = controller.request(new_name(), GIB, None, None, None)
    for places in ([long], [long, zone], [zone, long]):
        code, text = controller.client.fails("CreateVolume", **fields, accessibility_requirements=csi.TopologyRequirement(
            requisite=places))
        assert code == Code.INVALID_ARGUMENT and "the node's name 'nnn" in text and "is empty or too long" in text


def test_capacity_of_a_node_that_has_not_reported_is_unavailable_and_not_zero(cluster, nodes, controllers):
    node = nodes("node-a")
    client = controllers().client
    cluster.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-new"}})
    for unknown in ("node-new", "node-nobody"):
        place = csi.Topology(segments={"topology.cistern.io/node": unknown})
        code, text = client.fails("GetCapacity", accessible_topology=place)
        assert code == Code.UNAVAILABLE and f"node {unknown} has not reported pool 'default' yet" in text and "CIS5114" in text
    place = csi.Topology(segments={"topology.cistern.io/node": "node-a"})
    assert client.call("GetCapacity", accessible_topology=place).available_capacity > 0
    assert client.call("GetCapacity", accessible_topology=place, parameters={"pool": "other"}).available_capacity == 0
    node.tell_pool(status="Unhealthy", reason="gone")
    eventually(lambda: client.call("GetCapacity", accessible_topology=place).available_capacity == 0)


def test_the_same_call_finds_the_same_volume_and_another_size_is_refused(nodes, controllers):
    nodes()
    controller, name = controllers(), new_name()
    first = controller.create(name, node="node-a")
    assert controller.create(name, node="node-a") == first
    code, text = controller.create_fails(name, size=2 * GIB, node="node-a")
    assert code == Code.ALREADY_EXISTS and "capacity" in text
    code, text = controller.create_fails(name, node="node-a", parameters={"verify": "none"})
    assert code == Code.ALREADY_EXISTS and "verify" in text


@pytest.mark.tsan
@pytest.mark.asan
def test_two_replicas_asked_at_once_order_one_volume(cluster, nodes, controllers):
    node = nodes()
    both, name = [controllers("controller-0"), controllers("controller-1")], new_name()
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        volumes = list(pool.map(lambda i: both[i % 2].create(name, node="node-a"), range(16)))
    assert len({v.volume_id for v in volumes}) == 1
    assert len(cluster.get(VOLUMES)["items"]) == 1 and list(node.volumes) == [name]


def test_a_node_that_is_slow_is_waited_for_and_asked_again(nodes, controllers):
    node = nodes()
    answers, node.makes = node.makes, lambda order: None
    controller, name = controllers(), new_name()
    code, text = controller.create_fails(name, node="node-a", timeout=3)
    assert code == Code.ABORTED and "node-a has not created it yet" in text and "CIS5108" in text
    node.makes = answers
    assert controller.create(name, node="node-a").volume_id


def test_a_call_for_a_node_that_does_not_respond_is_answered_at_once(cluster, nodes, controllers):
    """Else a few dozen claims on such a node would keep all threads of the provisioner."""
    node = nodes()
    node.makes = lambda order: None
    controller, name = controllers(), new_name()
    controller.create_fails(name, node="node-a", timeout=3)  # leaves its order
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    cluster.patch("/api/v1/nodes/node-a", {"spec": {"taints": [taint]}})
    code, text = eventually(lambda: next((e for e in [controller.create_fails(new_name(), node="node-a", timeout=3)]
                                          if e[0] == Code.RESOURCE_EXHAUSTED), None))
    assert "node-a: does not respond" in text
    began = time.monotonic()
    code, text = controller.create_fails(name, node="node-a", timeout=20)
    assert code == Code.ABORTED and "CIS5108" in text and time.monotonic() - began < 10


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_controller_that_ends_while_it_waits_leaves_an_order_that_the_next_call_finds(cluster, nodes, controllers, how):
    node = nodes()
    answers, node.makes = node.makes, lambda order: None
    controller, name = controllers(), new_name()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        lost = pool.submit(controller.create, name, node="node-a")
        seen = eventually(lambda: order(cluster, name))
        controller.process.send_signal(how)
        with pytest.raises(grpc.RpcError):
            lost.result(30)
    node.makes = answers
    controller.stop()
    controller.start()
    volume = controller.create(name, node="node-a")
    assert order(cluster, name)["metadata"]["uid"] == seen["metadata"]["uid"]
    assert volume.volume_id == seen["spec"]["volumeID"]


def test_a_killed_controller_that_wrote_the_order_and_did_not_tell_the_node_is_made_good_by_the_next(
        cluster, nodes, controllers):
    """The crash between the order and the word to the node, as the server shows it: an order, and no bump."""
    node = nodes()
    controller, name = controllers(), new_name()
    other = controller.create(new_name(), node="node-a")
    node.stop()
    whole = cluster.get(VOLUMES)["items"][0]
    cluster.create(VOLUMES, {"apiVersion": "cistern.io/v1alpha1", "kind": "CisternVolume",
                             "metadata": {"name": name, "labels": whole["metadata"]["labels"],
                                          "finalizers": whole["metadata"]["finalizers"]},
                             "spec": whole["spec"] | {"volumeID": other.volume_id[:-1] + "0"}})
    before = cluster.get(f"{POOLS}/node-a.default")["spec"]["volumesGeneration"]
    controller.create_fails(name, node="node-a", timeout=3)
    assert cluster.get(f"{POOLS}/node-a.default")["spec"]["volumesGeneration"] > before


def test_controller_started_without_api_server_waits_and_continues_when_it_is_back(
        cluster, nodes, controllers):
    nodes()
    controller = controllers()
    controller.stop()
    cluster.stop_api()
    controller.launch()
    eventually(lambda: controller.socket.exists() and not controller.is_ready())
    for method in ("GetCapacity", "ListVolumes"):
        code, text = controller.client.fails(method)
        assert code == Code.UNAVAILABLE and "CIS5111" in text
    assert controller.create_fails(new_name(), node="node-a")[0] == Code.UNAVAILABLE
    cluster.start_api()
    eventually(controller.is_ready, seconds=60)
    assert controller.create(new_name(), node="node-a").volume_id


# ---- nodes that cannot ------------------------------------------------------------------------------------------------

def test_a_pool_that_is_full_is_refused_at_once_with_both_figures(cluster, nodes, controllers):
    nodes(total=180 * GIB)
    name = new_name()
    code, text = controllers().create_fails(name, size=200 * GIB, node="node-a")
    assert code == Code.RESOURCE_EXHAUSTED and "pool default on node-a: full: 180 GiB free, 200 GiB required" in text
    assert "CIS2028" in text and order(cluster, name) is None


@pytest.mark.parametrize("reason, code", [
    ("NodeFull", Code.RESOURCE_EXHAUSTED), ("OutOfRange", Code.OUT_OF_RANGE), ("Invalid", Code.INVALID_ARGUMENT),
    ("AlreadyExists", Code.ALREADY_EXISTS), ("PoolChanged", Code.ABORTED)])
def test_an_order_that_the_node_refuses_is_withdrawn_before_the_caller_hears_of_it(cluster, nodes, controllers, reason, code):
    node, controller, name = nodes(), controllers(), new_name()
    answers, node.makes = node.makes, node.refuse(reason, "no, since I say so")
    refused, text = controller.create_fails(name, node="node-a")
    assert refused == code and "no, since I say so" in text
    assert order(cluster, name) is None
    node.makes = answers
    assert controller.create(name, node="node-a").volume_id


@pytest.mark.tsan
@pytest.mark.asan
def test_a_node_that_was_full_sends_the_same_name_to_another_one(cluster, nodes, controllers):
    nodes("node-a").makes = nodes("node-b", pool_uuid="bbbbbbbbbbbb").refuse("NodeFull", "full")
    controller, name = controllers(), new_name()
    assert controller.create_fails(name, node="node-a")[0] == Code.RESOURCE_EXHAUSTED
    assert controller.create(name, node="node-b").volume_id.startswith("v1-bbbbbbbbbbbb-")


def test_create_on_missing_pool_missing_node_or_unhealthy_pool_fails(cluster, nodes, controllers):
    node, controller = nodes(), controllers()
    for at, parameters in (("node-a", {"pool": "other"}), ("node-x", {})):
        code, text = controller.create_fails(new_name(), node=at, parameters=parameters)
        assert code == Code.RESOURCE_EXHAUSTED and "CIS5107" in text
    node.tell_pool(status="Unhealthy", reason="the disk is read-only")

    def is_refused():
        try:
            code, text = controller.create_fails(new_name(), node="node-a", timeout=3)
        except AssertionError:  # the news has not come
            return False
        return code == Code.RESOURCE_EXHAUSTED and "the disk is read-only" in text
    eventually(is_refused)


def test_a_wrong_word_is_refused_by_its_name(nodes, controllers):
    nodes()
    controller = controllers()
    for parameters, sentence in [({"concurency": "8"}, "nearest known one is 'concurrency'"),
                                 ({"uri": "s3://bucket/"}, "is a field of BucketSource"),
                                 ({"hydration": "lazy"}, "expected one of eager gate none")]:
        code, text = controller.create_fails(new_name(), node="node-a", parameters=parameters)
        assert code == Code.INVALID_ARGUMENT and sentence in text


WRONG = [("hydraton", "eager", "'hydration'"), ("verify", "crc", "auto size none"), ("onDataLoss", "cry", "fail rehydrate empty"),
         ("concurrency", "0", "1"), ("concurrency", "513", "512"), ("bandwidth", "-1", "bandwidth"),
         ("minVolumeSize", "many", "minVolumeSize"), ("maxvolumesize", "1Gi", "'maxVolumeSize'"), ("directIO", "yes", "auto on off"),
         ("access", "nfs", "auto fuse bind"), ("exportSecrets", "x", "'exportSecret'"), ("pol", "x", "'pool'"),
         ("csi.storage.k8s.io/fstype", "ext4", "fstype")]


def test_each_parameter_of_a_class_is_checked_and_a_slip_of_the_pen_is_answered_with_the_nearest(nodes, controllers):
    nodes()
    controller = controllers()
    for key, value, hint in WRONG:
        code, text = controller.create_fails(new_name(), node="node-a", parameters={key: value})
        assert code == Code.INVALID_ARGUMENT and hint in text, (key, text)


MUTABLE = {"concurrency": "16", "bandwidth": "1G", "onDataLoss": "rehydrate"}
IMMUTABLE = {"pool": "other", "hydration": "gate", "access": "bind", "verify": "size", "minVolumeSize": "1Gi",
             "maxVolumeSize": "9Gi", "directIO": "off", "exportSecret": "x"}


def test_a_volume_attributes_class_changes_what_may_change_and_nothing_else(cluster, nodes, controllers):
    nodes()
    controller, name = controllers(), new_name()
    volume = controller.create(name, node="node-a")
    for key, value in MUTABLE.items():
        controller.client.call("ControllerModifyVolume", volume_id=volume.volume_id, mutable_parameters={key: value})
    for key, value in IMMUTABLE.items():
        code, text = controller.client.fails("ControllerModifyVolume", volume_id=volume.volume_id,
                                             mutable_parameters={key: value})
        assert code == Code.INVALID_ARGUMENT and key in text, (key, text)
    assert order(cluster, name)["spec"]["parameters"] == MUTABLE


# ---- claims -----------------------------------------------------------------------------------------------------------

def test_a_claims_annotations_make_the_order_and_the_source_is_copied_as_it_is_now(cluster, nodes, controllers):
    nodes()
    make_source(cluster, "llama", uri="s3://models/llama/", serviceAccountName="trainer")
    make_source(cluster, "out", export={"uri": "s3://ckpt/"})
    claim = make_claim(cluster, "weights", annotations={"cistern.io/source": "llama", "cistern.io/export-policy": "out",
                                                        "cistern.io/on-data-loss": "rehydrate"})
    name = new_name()
    controllers().create(name, node="node-a", claim=("default", "weights"))
    spec = order(cluster, name)["spec"]
    uid = claim["metadata"]["uid"]
    assert spec["claimRef"] == spec["orderedBy"] == {"namespace": "default", "name": "weights", "uid": uid}
    assert spec["claim"] == "default/weights"
    assert spec["parameters"] == {"hydration": "gate", "onDataLoss": "rehydrate"}
    assert spec["source"] == {"namespace": "default", "name": "llama", "generation": 1,
                              "spec": {"uri": "s3://models/llama/", "serviceAccountName": "trainer",
                                       "export": {"uri": "s3://ckpt/"}}}
    assert cluster.get("/apis/cistern.io/v1alpha1/namespaces/default/bucketsources/llama")["status"]["firstUsedAt"]


def test_each_annotation_is_checked_by_its_name(cluster, nodes, controllers):
    nodes()
    make_source(cluster, "plain")
    controller = controllers()
    for key, value, code, hint in [("hydration", "sometimes", Code.INVALID_ARGUMENT, "eager gate none"),
                                   ("on-data-loss", "cry", Code.INVALID_ARGUMENT, "fail rehydrate empty"),
                                   ("export-policy", "plain", Code.INVALID_ARGUMENT, "has no 'export'"),
                                   ("export-policy", "absent", Code.NOT_FOUND, "BucketSource 'default/absent': not found")]:
        make_claim(cluster, f"c-{value}", annotations={f"cistern.io/{key}": value})
        got, text = controller.create_fails(new_name(), node="node-a", claim=("default", f"c-{value}"))
        assert got == code and hint in text, (key, value, text)


def test_a_blank_volume_with_an_export_policy_fetches_nothing_and_is_exported(cluster, nodes, controllers):
    nodes()
    make_source(cluster, "out", uri="s3://models/llama/", region="eu-1", export={"uri": "s3://ckpt/"})
    make_claim(cluster, "scratch", annotations={"cistern.io/export-policy": "out"})
    name = new_name()
    controllers().create(name, node="node-a", claim=("default", "scratch"))
    source = order(cluster, name)["spec"]["source"]
    assert source["name"] == "out" and source["spec"] == {"region": "eu-1", "export": {"uri": "s3://ckpt/"}}


def prime_of(cluster, target, uid=None):
    name = f"prime-{uid or target['metadata']['uid']}"
    make_claim(cluster, name, NAMESPACE, {"cistern.io/populate-target": f"default/{target['metadata']['name']}"})
    return NAMESPACE, name


@pytest.mark.asan
def test_a_prime_claim_is_followed_to_its_target(cluster, nodes, controllers):
    nodes()
    make_source(cluster, "llama")
    target = make_claim(cluster, "weights", source="llama", annotations={"cistern.io/hydration": "eager"})
    prime, name = prime_of(cluster, target), new_name()
    controllers().create(name, node="node-a", claim=prime)
    spec = order(cluster, name)["spec"]
    assert spec["claimRef"]["name"] == "weights" and spec["orderedBy"]["name"] == prime[1]
    assert spec["parameters"] == {"hydration": "eager"} and spec["source"]["name"] == "llama"


def test_prime_claim_of_a_recreated_target_gets_no_volume(cluster, nodes, controllers):
    nodes()
    make_source(cluster, "llama")
    target = make_claim(cluster, "weights", source="llama")
    prime, name = prime_of(cluster, target, uid="11111111-2222-3333-4444-555555555555"), new_name()
    code, text = controllers().create_fails(name, node="node-a", claim=prime)
    assert code == Code.NOT_FOUND and "CIS5101" in text and order(cluster, name) is None


def test_missing_claim_or_source_is_reported_and_nothing_is_ordered(cluster, nodes, controllers):
    nodes()
    controller, name = controllers(), new_name()
    assert controller.create_fails(name, node="node-a", claim=("default", "nobody"))[0] == Code.NOT_FOUND
    make_claim(cluster, "waits", annotations={"cistern.io/source": "absent"})
    code, text = controller.create_fails(name, node="node-a", claim=("default", "waits"))
    assert code == Code.NOT_FOUND and "BucketSource 'default/absent': not found" in text
    make_source(cluster, "absent", uri="s3://bucket/", include=["["])  # the schema takes any pattern
    code, text = controller.create_fails(name, node="node-a", claim=("default", "waits"))
    assert code == Code.INVALID_ARGUMENT and "'include'" in text and "CIS2002" in text
    assert order(cluster, name) is None


# ---- what changes -----------------------------------------------------------------------------------------------------

def test_expansion_is_ordered_and_left_to_the_node_and_a_pool_that_is_short_refuses_it(cluster, nodes, controllers):
    nodes(total=10 * GIB)
    controller, name = controllers(), new_name()
    volume = controller.create(name, node="node-a")

    def expand(size):
        return controller.client.call("ControllerExpandVolume", volume_id=volume.volume_id,
                                      capacity_range=csi.CapacityRange(required_bytes=size))
    answer = expand(2 * GIB)
    assert answer.capacity_bytes == 2 * GIB and answer.node_expansion_required
    assert order(cluster, name)["spec"]["capacityBytes"] == 2 * GIB
    assert expand(GIB).capacity_bytes == 2 * GIB
    code, text = controller.client.fails("ControllerExpandVolume", volume_id=volume.volume_id,
                                         capacity_range=csi.CapacityRange(required_bytes=50 * GIB))
    assert code == Code.OUT_OF_RANGE and "CIS2029" in text


def test_modification_is_all_or_nothing(cluster, nodes, controllers):
    nodes()
    controller, name = controllers(), new_name()
    volume = controller.create(name, node="node-a", parameters={"concurrency": "8"})

    def modify(**words):
        return {"volume_id": volume.volume_id, "mutable_parameters": words}
    controller.client.call("ControllerModifyVolume", **modify(concurrency="16", bandwidth="1G"))
    code, _ = controller.client.fails("ControllerModifyVolume", **modify(concurrency="32", verify="none"))
    assert code == Code.INVALID_ARGUMENT
    assert order(cluster, name)["spec"]["parameters"] == {"concurrency": "16", "bandwidth": "1G"}


# ---- capacity and listings --------------------------------------------------------------------------------------------

def capacity(controller, node=None, **parameters):
    fields = {"parameters": parameters, "volume_capabilities": [capability()]}
    if node:
        fields["accessible_topology"] = csi.Topology(segments={"topology.cistern.io/node": node})
    return controller.client.call("GetCapacity", **fields)


def test_capacity_is_that_of_the_pool_of_the_segment_and_nothing_of_a_node_that_is_gone(nodes, controllers):
    node = nodes("node-a", total=10 * GIB)
    nodes("node-b", total=4 * GIB)
    controller = controllers()
    answer = capacity(controller, "node-a", minVolumeSize="1Gi")
    assert answer.available_capacity == 10 * GIB and answer.maximum_volume_size.value == 10 * GIB
    assert answer.minimum_volume_size.value == GIB
    assert capacity(controller, "node-a", maxVolumeSize="2Gi").maximum_volume_size.value == 2 * GIB
    assert capacity(controller, "node-a", pool="other").available_capacity == 0
    whole = capacity(controller)
    assert whole.available_capacity == 14 * GIB and whole.maximum_volume_size.value == 10 * GIB
    node.delete_node()
    eventually(lambda: capacity(controller, "node-a").available_capacity == 0)
    assert capacity(controller).available_capacity == 4 * GIB


@pytest.mark.asan
def test_volumes_are_listed_in_pages_with_their_condition(cluster, nodes, controllers):
    node, controller = nodes(), controllers()
    names = [new_name() for _ in range(5)]
    ids = sorted(controller.create(n, node="node-a").volume_id for n in names)
    node.apply(order(cluster, names[0]), phase="Failed",
               conditions=[{"type": "Hydrated", "status": "False", "reason": "Denied", "message": "403 from the bucket",
                            "lastTransitionTime": "2026-11-21T10:00:00Z"}])

    def listed():
        seen, token = [], ""
        while True:
            page = controller.client.call("ListVolumes", max_entries=2, starting_token=token)
            seen += page.entries
            token = page.next_token
            if not token:
                return seen
    bad = eventually(lambda: [e for e in listed() if e.status.volume_condition.abnormal])
    assert [e.volume.volume_id for e in listed()] == ids
    assert len(bad) == 1 and bad[0].status.volume_condition.message == "403 from the bucket"
    assert controller.client.fails("ListVolumes", starting_token="nonsense")[0] == Code.ABORTED
    one = controller.client.call("ControllerGetVolume", volume_id=bad[0].volume.volume_id)
    assert one.status.volume_condition.abnormal


def test_unknown_volume_is_not_found_and_its_deletion_succeeds(nodes, controllers):
    nodes()
    controller = controllers()
    for volume_id in ("fake-vol-id-1234", "v1-0123456789ab-000000000000"):
        assert controller.client.fails("ControllerGetVolume", volume_id=volume_id)[0] == Code.NOT_FOUND
        controller.delete(volume_id)
