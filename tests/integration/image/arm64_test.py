# SPDX-License-Identifier: Apache-2.0
"""The C code on arm64: cross-compiled, and run by QEMU. These two rooms have the checksums and the vector instructions.

All rooms: ninja -C build/arm64 tests && ctest --test-dir build/arm64 -L unit -E fuzz. Two fail: unit-io-uring, since QEMU has no
io_uring, and unit-pool-disk, which compares what QEMU translates of /proc."""

import re
import subprocess

import pytest

from paths import BUILD, CACHE, TOP


@pytest.fixture(scope="module")
def build():
    folder = BUILD / "arm64"
    subprocess.run(["cmake", "--toolchain", TOP / "deploy/image/toolchain.cmake", f"-DCMAKE_SYSROOT={CACHE / 'arm64'}",
                    f"-DCMAKE_CROSSCOMPILING_EMULATOR={CACHE / 'bin/qemu-aarch64'};-L;{CACHE / 'arm64'}", "-S", TOP, "-B", folder, "-G", "Ninja", "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON"], check=True, capture_output=True)
    made = subprocess.run(["ninja", "-C", folder, "unit-util", "unit-catalog"], capture_output=True, text=True)
    assert made.returncode == 0, made.stdout[-4000:]
    return folder


@pytest.mark.parametrize("room", ["util", "catalog"])
def test_unit_tests_of_a_room_pass_on_arm64(build, room):
    header = subprocess.run(["readelf", "-h", build / f"tests/unit-{room}"], capture_output=True, text=True, check=True).stdout
    assert re.search(r"Machine: +AArch64", header)
    done = subprocess.run(["ctest", "--test-dir", build, "-L", "unit", "-R", f"^unit-{room}-", "--no-tests=error",
                           "--output-on-failure", "-j2"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]
