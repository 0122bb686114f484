# SPDX-License-Identifier: Apache-2.0
"""Google's own client of Cloud Storage as a command, for the Python environment that has it. Like all of Google's clients,
it reads STORAGE_EMULATOR_HOST.

  google_client.py sizes BUCKET PREFIX
  google_client.py download|upload BUCKET PREFIX DIRECTORY"""

import json
import pathlib
import sys

from google.cloud import storage

CHUNK_BYTES = 5 << 20


def main(verb, bucket_name, prefix, *rest):
    client = storage.Client(project="test")
    bucket = client.bucket(bucket_name)
    if verb == "sizes":
        json.dump({blob.name: blob.size for blob in client.list_blobs(bucket, prefix=prefix)}, sys.stdout)
        return
    directory = pathlib.Path(rest[0])
    if verb == "download":
        for blob in client.list_blobs(bucket, prefix=prefix):
            path = directory / blob.name.removeprefix(prefix)
            path.parent.mkdir(parents=True, exist_ok=True)
            blob.download_to_filename(path)
    elif verb == "upload":
        for path in (path for path in directory.rglob("*") if path.is_file()):
            bucket.blob(f"{prefix}{path.relative_to(directory)}", chunk_size=CHUNK_BYTES).upload_from_filename(path)


main(*sys.argv[1:])
