# SPDX-License-Identifier: Apache-2.0
"""SELinux labels by mount: what the kubelet sends to a driver with `seLinuxMount: true` reaches mount(2). No kernel of
the tests has SELinux, so that nothing here shows what a label does."""
import subprocess

import grpc
import pytest

from integration.lib.control import eventually

from .driver import BUILD, Driver, Mode, capability, mounts
from .lost_mount_test import kill_keeper_and_driver

Code = grpc.StatusCode
ONE, OTHER = ("system_u:object_r:container_file_t:s0:c1,c2", "system_u:object_r:container_file_t:s0:c3,c4")
UNSORTED = "system_u:object_r:container_file_t:s0:c2,c1"


def labelled(label, mode=Mode.SINGLE_NODE_MULTI_WRITER):
    """As the kubelet writes it: a comma in a label needs quotes."""
    made = capability(mode)
    made.mount.mount_flags.append(f'context="{label}"')
    return made


@pytest.fixture
def contexts(folder):
    """The mounts with a label: pairs of a volume's id, or a loop device, and the label."""
    path = folder / "contexts"
    return lambda: [tuple(line.split()) for line in path.read_text().splitlines() if not line.endswith(" ")]


@pytest.fixture
def node(folder, contexts):
    """A driver whose kernel seems to have SELinux."""
    d = Driver(folder, env={"LD_PRELOAD": str(BUILD / "tests/libselinux_kernel.so"), "CISTERN_CONTEXTS": str(folder / "contexts")})
    try:
        yield d.start()
    finally:
        d.end()


def stage_again(node, volume, label):
    """As the kubelet does until it succeeds: a mount namespace that another test has made holds a copy of the image's
    mount, with the old label, until it ends."""
    def staged():
        try:
            node.stage(volume, labelled(label))
        except grpc.RpcError as error:
            assert error.code() == Code.FAILED_PRECONDITION and "CIS3024" in error.details(), error.details()
            return False
        return True
    eventually(staged, what="the image gets the other label")


def refused(driver, method, **fields):
    code, text = driver.client.fails(method, **fields)
    assert code == Code.FAILED_PRECONDITION and "CIS3024" in text, text
    return text


@pytest.mark.parametrize("access", ["auto", "fuse"])
@pytest.mark.parametrize("mode", [Mode.SINGLE_NODE_SINGLE_WRITER, Mode.SINGLE_NODE_READER_ONLY])
def test_label_of_the_pod_is_the_label_of_the_fuse_mount(node, contexts, access, mode):
    volume = node.client.create("pvc", access=access).volume_id
    node.stage(volume, labelled(ONE, mode))
    node.publish(volume, cap=labelled(ONE, mode), readonly=mode == Mode.SINGLE_NODE_READER_ONLY)
    node.stage(volume, labelled(ONE, mode))
    assert contexts() == [(volume, ONE)]


def test_lost_mount_is_made_again_with_its_label(node, contexts):
    volume = node.client.create("pvc", access="fuse").volume_id
    node.stage(volume, labelled(ONE))
    (node.publish(volume, "first", labelled(ONE)) / "file").write_text("words")
    kill_keeper_and_driver(node)
    assert (node.publish(volume, "second", labelled(ONE)) / "file").read_text() == "words"
    assert contexts() == [(volume, ONE)] * 2


def test_label_survives_a_restart_of_the_driver(node, contexts):
    volume = node.client.create("pvc", access="fuse").volume_id
    node.stage(volume, labelled(ONE))
    node.stop()
    node.start()
    node.publish(volume, "first", labelled(ONE))
    assert contexts() == [(volume, ONE)]
    node.target(volume, "second").parent.mkdir(parents=True)
    refused(node, "NodePublishVolume", **node.publish_fields(volume, "second", labelled(OTHER)))


@pytest.mark.parametrize("access", ["fuse", "bind"])
def test_kernel_that_refuses_the_label_fails_the_stage_with_the_label(node, access):
    """Without the test's mount(2) this kernel refuses the option that arrives there."""
    volume = node.client.create("pvc", access=access).volume_id
    node.stop()
    node.env = {key: text for key, text in node.env.items() if key != "CISTERN_CONTEXTS"}
    node.start()
    node.staging(volume).mkdir(parents=True)
    code, text = node.client.fails("NodeStageVolume", volume_id=volume, volume_capability=labelled(ONE),
                                   staging_target_path=str(node.staging(volume)))
    assert code == Code.INVALID_ARGUMENT and ONE in text and "Invalid argument" in text, text
    node.stage(volume, capability())


@pytest.mark.parametrize("access", ["fuse", "bind"])
def test_categories_in_another_order_are_the_same_label(node, contexts, access):
    """mountinfo shows them as the kernel sorts them, a pod has them in any order."""
    volume = node.client.create("pvc", access=access).volume_id
    node.stage(volume, labelled(ONE))
    node.publish(volume, cap=labelled(UNSORTED))
    node.stage(volume, labelled(UNSORTED))
    end_use(node, volume)
    if access == "bind":
        with subprocess.Popen(["cat"], cwd=node.folder_of(volume) / "data", stdin=subprocess.PIPE):  # as a running export
            node.stage(volume, labelled(UNSORTED))
            end_use(node, volume)
    assert len(contexts()) == 1


# ---- a bind mount: the label is that of the volume's image, which was mounted when the volume was created ----

def start_use(node, name, label):
    volume = node.client.create(name, access="bind").volume_id
    stage_again(node, volume, label)
    target = node.publish(volume, cap=labelled(label))
    (target / "file").write_text("words")
    return volume, target


def end_use(node, volume):
    node.unpublish(volume)
    node.unstage(volume)


def test_label_of_the_pod_is_the_label_of_the_image_of_a_bind_mount(node, contexts):
    volume, target = start_use(node, "pvc", ONE)
    node.stage(volume, labelled(ONE))
    (device, label), = contexts()
    source = subprocess.run(["findmnt", "-no", "SOURCE", target], check=True, capture_output=True, text=True).stdout
    assert label == ONE and source.strip().startswith(device)
    end_use(node, volume)
    node.stage(volume, labelled(ONE))
    assert len(contexts()) == 1, "the image has the label already"
    node.unstage(volume)
    stage_again(node, volume, OTHER)
    assert [label for _, label in contexts()] == [ONE, OTHER]
    assert (node.publish(volume, cap=labelled(OTHER)) / "file").read_text() == "words"
    end_use(node, volume)
    node.stage(volume, capability())
    assert (node.publish(volume) / "file").read_text() == "words"
    assert len(contexts()) == 2


def test_image_gets_its_label_again_after_a_reboot(node, contexts):
    volume, target = start_use(node, "pvc", ONE)
    node.stop()
    for path in [m for m in mounts() if volume in m][::-1]:
        subprocess.run(["umount", path], check=True)
    node.start()
    node.stage(volume, labelled(ONE))
    assert (node.publish(volume, cap=labelled(ONE)) / "file").read_text() == "words"
    assert [label for _, label in contexts()] == [ONE, ONE]


@pytest.mark.parametrize("where", ["pod", "data"])
def test_label_of_an_image_in_use_stays_and_another_one_is_refused(node, contexts, where):
    """A process of the old pod, or a job. With the old label the volume can be used at once."""
    volume, target = start_use(node, "pvc", ONE)
    data = node.pools["default"] / "volumes" / volume / "data"
    with subprocess.Popen(["cat"], cwd=target if where == "pod" else data, stdin=subprocess.PIPE) as process:
        end_use(node, volume)
        code, text = node.client.fails("NodeStageVolume", volume_id=volume, volume_capability=labelled(OTHER),
                                       staging_target_path=str(node.staging(volume)))
        assert code == Code.FAILED_PRECONDITION, text
        assert "CIS3010" in text if where == "data" else "CIS3024" in text and ONE in text and OTHER in text, text
        node.stage(volume, labelled(ONE))
        assert (node.publish(volume, cap=labelled(ONE)) / "file").read_text() == "words"
        end_use(node, volume)
        process.stdin.close()
    stage_again(node, volume, OTHER)
    assert (node.publish(volume, cap=labelled(OTHER)) / "file").read_text() == "words"
    assert {label for _, label in contexts()} == {ONE, OTHER}


@pytest.mark.parametrize("access", ["fuse", "bind"])
def test_pods_with_different_labels_are_refused_by_both_labels(driver, access):
    volume = driver.client.create("pvc", access=access).volume_id
    driver.stage(volume, labelled(ONE))
    driver.publish(volume, "first", labelled(ONE))
    driver.target(volume, "second").parent.mkdir(parents=True)
    text = refused(driver, "NodePublishVolume", **driver.publish_fields(volume, "second", labelled(OTHER)))
    assert volume in text and ONE in text and OTHER in text and "same SELinux label" in text
    text = refused(driver, "NodeStageVolume", volume_id=volume, volume_capability=capability(Mode.SINGLE_NODE_MULTI_WRITER),
                   staging_target_path=str(driver.staging(volume)))
    assert ONE in text and "'none'" in text
    driver.publish(volume, "third", labelled(ONE))
    for pod in ("first", "third"):
        driver.unpublish(volume, pod)
    driver.unstage(volume)
    driver.stage(volume, labelled(OTHER))
    driver.publish(volume, "second", labelled(OTHER))


@pytest.mark.parametrize("access", ["fuse", "bind"])
def test_label_is_dropped_with_a_warning_where_the_kernel_has_no_selinux(driver, access):
    volume = driver.client.create("pvc", access=access).volume_id
    driver.stage(volume, labelled(ONE))
    (driver.publish(volume, cap=labelled(ONE)) / "file").write_text("words")
    warning = next(line for line in driver.log_text().splitlines() if "SELinux label of a mount is dropped" in line)
    assert volume in warning and ONE in warning
