# SPDX-License-Identifier: Apache-2.0
"""Users of a mount for stress_worker.py: programs, each with a check of its own files."""

import os
import shutil
import sqlite3
import subprocess

from stress_user import User


def run(*words, **more):
    done = subprocess.run(words, capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, f"{' '.join(map(str, words))}: {done.stdout[-500:]}{done.stderr[-500:]}"
    return done.stdout


class Database(User):
    """SQLite, with each of its journals. With WAL its index is a shared mapping."""

    def __init__(self, folder, seed):
        super().__init__(folder, seed)
        self.rows = 0
        self.connect()
        self.base.execute("create table t (n integer primary key, data blob)")

    def connect(self):
        self.base = sqlite3.connect(self.home / "base", isolation_level=None, timeout=30)
        self.base.execute(f"pragma journal_mode={self.chance.choice(('wal', 'delete', 'truncate', 'persist'))}")

    def once(self):
        self.base.execute("begin immediate")
        for _ in range(self.chance.randrange(1, 20)):
            self.base.execute("insert into t values (?, ?)", (self.rows, self.chance.randbytes(500)))
            self.rows += 1
        self.base.execute("commit")
        if self.chance.random() < 0.1:
            self.base.execute("begin")
            self.base.execute("delete from t")
            self.base.execute("rollback")
        assert self.base.execute("select count(*), max(n) from t").fetchone() == (self.rows, self.rows - 1)
        if self.chance.random() < 0.2:
            self.base.close()
            self.connect()

    def finish(self):
        assert self.base.execute("pragma integrity_check").fetchone() == ("ok",)
        self.base.close()


class Repository(User):
    """git: commits, branches, packs."""

    def __init__(self, folder, seed):
        super().__init__(folder, seed)
        self.git("init", "-q", "-b", "main")

    def git(self, *words):
        identity = {f"GIT_{who}_{what}": "x@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        return run("git", "-C", self.home, *words, env={**os.environ, **identity, "GIT_CONFIG_GLOBAL": "/dev/null"})

    def once(self):
        self.number += 1
        for i in range(5):
            (self.home / f"file-{i}").write_bytes(self.chance.randbytes(300).hex().encode())
        self.git("add", "-A")
        self.git("commit", "-q", "-m", str(self.number))
        assert self.git("status", "--porcelain") == ""
        if self.number % 5 == 0:
            self.git("gc", "-q", "--prune=now")
        if self.number % 3 == 0 and self.number > 3:
            self.git("checkout", "-q", "HEAD~2")
            self.git("checkout", "-q", "main")
        assert self.git("rev-list", "--count", "main") == f"{self.number}\n"

    def finish(self):
        self.git("fsck", "--full", "--strict")


class Builder(User):
    """tar, cp, and programs that are run from where they were just copied to."""

    def once(self):
        self.number += 1
        tree = self.home / f"tree-{self.number}"
        tree.mkdir()
        shutil.copy("/bin/true", tree / "program")
        run(tree / "program")
        for i in range(30):
            (tree / f"file-{i}").write_bytes(self.chance.randbytes(100 * i))
        os.symlink("file-1", tree / "link")
        os.link(tree / "file-2", tree / "second")
        run("tar", "-C", tree, "-cf", self.home / "tar", ".")
        run("cp", "-a", tree, self.home / "copy")
        (self.home / "unpacked").mkdir()
        run("tar", "-C", self.home / "unpacked", "-xf", self.home / "tar")
        for name in ("copy", "unpacked"):
            run("diff", "-r", tree, self.home / name)
            assert (self.home / name / "second").stat().st_nlink == 2
            shutil.rmtree(self.home / name)
        shutil.rmtree(tree)


class Loader(User):
    """Four processes that open, read and check many files, as the workers of a data loader do."""

    SCRIPT = "for f in $(ls | shuf); do [ $(cksum <$f | cut -d' ' -f1) = $(cat ../sums/$f) ] || { echo $f; exit 1; }; done"

    def __init__(self, folder, seed):
        super().__init__(folder, seed)
        for name in ("files", "sums"):
            (self.home / name).mkdir()
        for i in range(60):
            content = self.chance.randbytes(self.chance.choice((1, 5000, 60_000)))
            (self.home / "files" / str(i)).write_bytes(content)
            total = run("cksum", self.home / "files" / str(i)).split()[0]
            (self.home / "sums" / str(i)).write_text(total)

    def once(self):
        workers = [subprocess.Popen(["sh", "-c", self.SCRIPT], cwd=self.home / "files", stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT) for _ in range(4)]
        said = [w.communicate()[0] for w in workers]
        assert said == [b""] * 4, said


USERS = {"database": Database, "repository": Repository, "builder": Builder, "loader": Loader}
