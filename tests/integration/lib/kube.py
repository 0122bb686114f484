# SPDX-License-Identifier: Apache-2.0
"""kube_tool as a child: requests there, answers back, and the events of its informers and leases."""

import json
import os
import queue
import subprocess
import threading
import time

from paths import BUILD


class Answer(dict):
    def __getattr__(self, name):
        return self.get(name)


class KubeTool:
    def __init__(self, kubeconfig, *flags, env=None):
        command = [BUILD / "tests/kube_tool", *(["--kubeconfig", kubeconfig] if kubeconfig else []), *map(str, flags)]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                      env=dict(os.environ, **(env or {})))
        self.answers, self.told = {}, queue.Queue()
        self.changed = threading.Condition()
        self.next_id = 1
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        for line in self.child.stdout:
            answer = Answer(json.loads(line))
            if "id" in answer:
                with self.changed:
                    self.answers[answer["id"]] = answer
                    self.changed.notify_all()
            else:
                answer["heard"] = time.monotonic()
                self.told.put(answer)

    def send(self, do, **arguments):
        number, self.next_id = self.next_id, self.next_id + 1
        self.child.stdin.write(json.dumps({"do": do, "id": number, **arguments}) + "\n")
        self.child.stdin.flush()
        return number

    def wait(self, number, seconds=60):
        with self.changed:
            assert self.changed.wait_for(lambda: number in self.answers, seconds), "no answer came"
            return self.answers.pop(number)

    def ask(self, do, **arguments):
        return self.wait(self.send(do, **arguments))

    def hear(self, seconds=30):
        return self.told.get(timeout=seconds)

    def hears_nothing(self, seconds):
        try:
            raise AssertionError(f"heard {self.told.get(timeout=seconds)}")
        except queue.Empty:
            pass

    def memory_kib(self):
        with open(f"/proc/{self.child.pid}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))

    def stop(self):
        self.child.stdin.close()
        try:
            assert self.child.wait(30) == 0
        finally:
            self.child.kill()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:
            self.child.kill()
        else:
            self.stop()
