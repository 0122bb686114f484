# SPDX-License-Identifier: Apache-2.0
"""Container images written without an engine or a registry: a tar that `ctr images import` takes. The same input gives
the same bytes, so an image changes its id only with its contents."""

import hashlib
import io
import json
import pathlib
import re
import subprocess
import tarfile

EPOCH = "1970-01-01T00:00:00Z"


def add(tar, name, kind, content=b"", mode=0o755):
    info = tarfile.TarInfo(name)
    info.type, info.mode = kind, mode
    if kind == tarfile.SYMTYPE:
        info.linkname = content
        tar.addfile(info)
    else:
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))


def layer_of_files(files):
    """A layer of {path: bytes, or a str that is the target of a symbolic link}; all files may be executed."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        folders = {"tmp", "proc", "sys", "dev", "etc", "var", "run"}
        for name in files:
            folders.update(str(parent) for parent in pathlib.PurePath(name).parents if str(parent) != ".")
        for name in sorted(folders):
            add(tar, name, tarfile.DIRTYPE, mode=0o1777 if name == "tmp" else 0o755)
        for name in sorted(files):
            link = isinstance(files[name], str)
            add(tar, name, tarfile.SYMTYPE if link else tarfile.REGTYPE, files[name])
    return buffer.getvalue()


def layer_of_folder(folder):
    """A layer of a root file system, as root's, of no time."""
    def plain(info):
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        return info

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(pathlib.Path(folder).rglob("*")):
            tar.add(path, str(path.relative_to(folder)), recursive=False, filter=plain)
    return buffer.getvalue()


def write(path, tag, layer, entrypoint=None, command=None, user=""):
    digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps({
        "architecture": "amd64", "os": "linux", "created": EPOCH,
        "config": {"Entrypoint": entrypoint, "Cmd": command, "User": user, "WorkingDir": "/",
                   "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{"created": EPOCH}],
    }, sort_keys=True).encode()
    name = hashlib.sha256(config).hexdigest() + ".json"
    manifest = json.dumps([{"Config": name, "RepoTags": [tag], "Layers": [f"{digest}/layer.tar"]}]).encode()
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        add(tar, name, tarfile.REGTYPE, config, 0o644)
        add(tar, f"{digest}/layer.tar", tarfile.REGTYPE, layer, 0o644)
        add(tar, "manifest.json", tarfile.REGTYPE, manifest, 0o644)


def libraries(program):
    """The libraries of a program, {path in the image: bytes}; the loader finds them where it looks by default."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True).stdout  # of a static one, nothing
    return {path.lstrip("/"): pathlib.Path(path).read_bytes() for path in re.findall(r"(/\S+) \(0x", listed)}


def busybox(path, program, tag="localhost/busybox:1", **layout):
    """busybox, each applet by its name (its `wget -T` crashes: a fault of the package). More as in write()."""
    applets = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split()
    files = {f"bin/{applet}": "/bin/busybox" for applet in applets}
    files["bin/busybox"] = pathlib.Path(program).read_bytes()
    files.update(libraries(program))
    files["etc/nsswitch.conf"] = b"hosts: files dns\n"
    files["etc/passwd"] = b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
    files.update(layout.pop("files", {}))
    write(path, tag, layer_of_files(files), **{"command": ["/bin/sh"], **layout})


def program(path, tag, source):
    """An image of one static program."""
    name = pathlib.Path(source).name
    write(path, tag, layer_of_files({name: pathlib.Path(source).read_bytes()}), entrypoint=[f"/{name}"])
