# SPDX-License-Identifier: Apache-2.0
"""Wrong commands, URIs, flags, credentials, files and networks. Each answer names the object, the cause and the next step,
and something is said within ten seconds."""
import contextlib
import json
import os
import select
import socket
import subprocess
import threading
import time

import pytest

from integration.lib.buckets import clean_environment
from paths import CISTERN
from servers import minio
from servers.answering import Answering
from servers.bucket import BucketServer

USAGE, NOT_FOUND, DENIED, TRANSIENT, FULL, MISMATCH, EMPTY, ENVIRONMENT = 2, 3, 4, 5, 6, 7, 9, 10
SIGN_OF_LIFE_SECONDS = 10
BEGIN = b"begin\n"  # of a script that prepares a namespace first, which takes as long as the machine is busy

# Command, exit code, and words of the answer: object, cause, next step. SERVER and HOLE are ports: MinIO, and a listener
# that never answers. HERE is the current directory. `out` does not exist; `data` is a directory with the file `file`, and `link`
# leads to it.
ROWS = [
    # verbs and arguments
    ("sync s3://bench/in/ out", USAGE, "'sync'", "unknown verb", "`cistern hydrate URI DIR`"),
    ("hydrat s3://bench/in/ out", USAGE, "'hydrat'", "unknown verb", "did you mean hydrate?"),
    ("hydrate s3://bench/in/", USAGE, "hydrate", "needs URI and DIR", "see `cistern hydrate --help`"),
    ("hydrate data s3://bench/in/", USAGE, "data", "copies URI to DIR", "`cistern hydrate s3://bench/in/ data`"),
    ("export s3://bench/in/ data", USAGE, "data", "sends DIR to URI", "`cistern export data s3://bench/in/`"),
    ("ls", USAGE, "ls", "needs URI", "see `cistern ls --help`"),
    ("hydrate s3://bench/in/ out more", USAGE, "'more'", "unexpected argument", "see `cistern hydrate --help`"),
    ("export data s3://bench/o/ more", USAGE, "'more'", "unexpected argument", "see `cistern export --help`"),
    ("ls s3://bench/in/ s3://bench/o/", USAGE, "'s3://bench/o/'", "unexpected argument", "see `cistern ls --help`"),
    ("doctor --as-export", USAGE, "--as-export", "the rights of a URI", "`cistern doctor URI --as-export`"),
    ("du s3://bench/in/", USAGE, "'du'", "unknown verb", "`cistern ls --sum URI`"),
    ("cat s3://bench/in/file", USAGE, "'cat'", "unknown verb", "`cistern hydrate URI DIR` fetches the object"),
    ("rm s3://bench/in/file", USAGE, "'rm'", "unknown verb", "use the tool of the store"),
    ("mb s3://bench", USAGE, "'mb'", "unknown verb", "use the tool of the store"),
    ("stat s3://bench/in/file", USAGE, "'stat'", "unknown verb", "`cistern ls -l URI`"),
    ("completion bash", USAGE, "'completion'", "unknown verb", "the package installs completions"),
    ("configure", USAGE, "'configure'", "unknown verb", "`cistern doctor URI`"),
    ("mount s3://bench/in/ data", USAGE, "'s3://bench/in/'", "mount takes a directory", "`cistern hydrate s3://bench/in/ DIR`"),
    ("hydrate s3://bench/in/ /", USAGE, "'/'", "is the root directory", "write the path of a directory below it"),
    ("export // s3://bench/o/", USAGE, "'//'", "is the root directory", "write the path of a directory below it"),
    ("hydrate s3://bench/in/ ~/out", USAGE, "'~/out'", "the shell did not expand '~'", "$HOME"),
    ("export ~ s3://bench/o/", USAGE, "'~'", "the shell did not expand '~'", "$HOME"),
    ("hydrate s3://bench/in/ C:\\data", USAGE, "'C:\\data'", "is a Windows path", "write a path of this system"),
    ("hydrate s3://bench/in/ s3://other/in/", USAGE, "'s3://other/in/'", "is a URI", "`cistern export DIR s3://other/in/`"),
    ("hydrate s3://bench/in/ file:///out", USAGE, "'file:///out'", "is a URI", "write /out"),
    ("export s3://bench/in/ s3://other/in/", USAGE, "'s3://bench/in/'", "is a URI", "`cistern hydrate s3://bench/in/ DIR`"),
    ("hydrate file://HERE/data/ data/out", USAGE, "'data/out'", "inside its source 'file://HERE/data/'", "a DIR outside"),
    ("hydrate file://HERE/data/ data", USAGE, "'data'", "inside its source 'file://HERE/data/'", "a DIR outside"),
    ("hydrate file://HERE/data/ link/out", USAGE, "'link/out'", "inside its source 'file://HERE/data/'", "a DIR outside"),
    ("export data file://HERE/data/new/", USAGE, "'file://HERE/data/new/'", "inside 'data'", "a URI outside"),
    ("export data file://HERE/link/", USAGE, "'file://HERE/link/'", "inside 'data'", "a URI outside"),
    ("hydrate s3://bench/in/ -", USAGE, "'-'", "nothing is copied from stdin or to stdout", "or ./-"),
    ("export - s3://bench/o/", USAGE, "'-'", "nothing is copied from stdin or to stdout", "or ./-"),
    ("hydrate s3://bench/in/ out/.", USAGE, "'out/.'", "is not a valid directory name", "end the path with a name"),
    ("export data s3://bench/o/*", USAGE, "'s3://bench/o/*'", "has a wildcard", "choose files with --include"),
    ("mount nowhere empty", NOT_FOUND, "'nowhere'", "No such file", "mount shows an existing directory"),
    ("mount data/file empty", USAGE, "'data/file'", "is not a directory", "name one"),
    ("mount data nowhere", NOT_FOUND, "'nowhere'", "No such file", "mkdir makes it"),
    ("mount data data", USAGE, "'HERE/data'", "inside its own mount point", "choose another mount point"),
    ("mount data data/file", USAGE, "'HERE/data/file'", "is not a directory", "name one"),
    # flags
    ("hydrate s3://bench/in/ out --no-recursive", USAGE, "'--no-recursive'", "unknown flag", "did you mean"),
    ("hydrate s3://bench/in/ out --price-read 5", USAGE, "--price-read", "for --dry-run", "add it, or remove"),
    ("export data s3://bench/o/ --price-write 5", USAGE, "--price-write", "for --dry-run", "add it, or remove"),
    ("export data s3://bench/o/ --since 2099-01-01T00:00:00Z", USAGE, "--since", "in the future", "correct it"),
    ("hydrate s3://bench/in/ out --memory 1", USAGE, "--memory: '1' is not 1048576 bytes or more"),
    ("hydrate s3://bench/in/ out --memory 100T", FULL, "100000000000000 bytes", "Cannot allocate memory",
     "with --memory 4Mi"),
    ("ls s3://bench/in/ --manifest-out=", USAGE, "--manifest-out", "its FILE is empty", "leave the flag out"),
    ("ls s3://bench/in/ --manifest-out nowhere/list", ENVIRONMENT, "'nowhere/list'", "No such file", "check its file, disk or pipe"),
    ("hydrate s3://bench/in/ out --bandwith 1M", USAGE, "'--bandwith'", "unknown flag", "did you mean --bandwidth?"),
    ("hydrate s3://bench/in/ out --regoin eu-west-1", USAGE, "'--regoin'", "unknown flag", "did you mean --region?"),
    ("ls s3://bench/in/ --endpoint_url http://127.0.0.1:1", USAGE, "'--endpoint_url'", "unknown flag", "did you mean --endpoint?"),
    ("export data s3://bench/o/ --include **/[z-a]", USAGE, "'export.include: **/[z-a]'", "can match no file", "correct include"),
    ("hydrate s3://bench/in/ out -x", USAGE, "'-x'", "unknown flag", "--help lists them"),
    ("hydrate s3://bench/in/ out --bandwidth 10Mbit", USAGE, "--bandwidth", "'10Mbit' is not a quantity", "such as 512, 10G"),
    ("hydrate s3://bench/in/ out --timeout 5", USAGE, "--timeout", "'5' is not a span of time", "such as 250ms, 30s"),
    ("hydrate s3://bench/in/ out --concurrency many", USAGE, "--concurrency", "'many' is not", "1 to 512"),
    ("hydrate s3://bench/in/ out --concurrency 1000", USAGE, "--concurrency", "", "1 to 512"),
    ("hydrate s3://bench/in/ out --concurrency 0", USAGE, "--concurrency", "'0' is not", "1 to 512"),
    ("hydrate s3://bench/in/ out --workers 33", USAGE, "--workers", "'33' is not", "1 to 32"),
    ("hydrate s3://bench/in/ out --retries 0", USAGE, "--retries", "'0' is not", "1 to 1000"),
    ("hydrate s3://bench/in/ out --max-errors 0", USAGE, "--max-errors", "'0' is not", "1 or more"),
    ("hydrate s3://bench/in/ out --max-errors -1", USAGE, "--max-errors", "'-1' is not", "1 or more"),
    ("hydrate s3://bench/in/ out --bandwidth 0M", USAGE, "--bandwidth", "'0M' is not", "above 0"),
    ("hydrate s3://bench/in/ out --timeout 0s", USAGE, "--timeout", "'0s' is not", "above 0"),
    ("export data s3://bench/o/ --deadline 0s", USAGE, "--deadline", "'0s' is not", "above 0"),
    ("export data s3://bench/o/ --marker a/b", USAGE, "'export.marker: a/b'", "is a path", "correct the value"),
    ("export data s3://bench/o/ --marker=", USAGE, "--marker", "its NAME is empty", "leave the flag out"),
    ("export data s3://bench/o/ --storage-class=", USAGE, "--storage-class", "its NAME is empty", "leave the flag out"),
    ("export data s3://bench/o/ --state=", USAGE, "--state", "its DIR is empty", "leave the flag out"),
    ("hydrate s3://bench/in/ out --endpoint=", USAGE, "--endpoint", "its URL is empty", "leave the flag out"),
    ("ls s3://bench/in/ --region=", USAGE, "--region", "its NAME is empty", "leave the flag out"),
    ("ls s3://bench/in/ --billing-project acme", USAGE, "'s3://bench/in/'", "--billing-project has no effect", "write --requester-pays"),
    ("hydrate gs://bench/in/ out --requester-pays", USAGE, "'gs://bench/in/'", "--requester-pays has no effect",
     "write --billing-project PROJECT"),
    ("ls -lr s3://bench/in/", USAGE, "'-lr'", "unknown flag", "write each letter apart: -l -r"),
    ("hydrate s3://bench/in/ out --volume data", USAGE, "--volume", "names URI and DIR already", "remove the arguments"),
    ("hydrate --volume data --include *.bin", USAGE, "--include", "is not for --volume", "remove the flag"),
    ("hydrate --volume data --dry-run", USAGE, "--dry-run", "is not for --volume", "remove the flag"),
    ("hydrate --volume data --retries 3", USAGE, "--retries", "is not for --volume", "remove the flag"),
    ("export --volume data --since 2h", USAGE, "--since", "is not for --volume", "remove the flag"),
    ("export --volume data --conflict version", USAGE, "--conflict", "is not for --volume", "remove the flag"),
    ("export --volume data --timeout 1m", USAGE, "--timeout", "is not for --volume", "remove the flag"),
    ("hydrate s3://bench/in/ out \u2014max-errors 5", USAGE, "'\u2014max-errors'", "typographic dash", "write --max-errors"),
    ("ls \u2013r s3://bench/in/", USAGE, "'\u2013r'", "typographic dash", "write -r"),
    ("\u2014version", USAGE, "'\u2014version'", "typographic dash", "write --version"),
    ("hydrate s3://bench/in/ out --include \u201c*.bin\u201d", USAGE, "--include", "typographic quotes", "write plain ones"),
    ("hydrate --volume nowhere", NOT_FOUND, "'nowhere'", "No such file", "the directory of a volume, POOL/volumes/ID"),
    ("export --volume data", NOT_FOUND, "'data' is not a volume", "volume.json", "the directory of a volume, POOL/volumes/ID"),
    ("hydrate s3://bench/in/ /sys/out", DENIED, "/sys/out", "Operation not permitted", "use another directory"),
    ("export data s3://bench/o/ --for release", USAGE, "--for", "is for --volume", "remove it"),
    ("hydrate s3://bench/in/ out --verify md5", USAGE, "--verify", "not 'md5'", "auto, size or none"),
    ("hydrate s3://bench/in/ out --shard 4/4", USAGE, "--shard", "'4/4' is not a shard", "0/4 to 3/4"),
    ("hydrate s3://bench/in/ out --include [a", USAGE, "'[a'", "malformed at byte 1", "'[' is not closed"),
    ("hydrate s3://bench/in/ out --include=", USAGE, "--include", "its GLOB is empty", "leave the flag out"),
    ("hydrate s3://bench/in/ out --priority=", USAGE, "--priority", "its GLOB is empty", "leave the flag out"),
    ("ls -r s3://bench/in/ --include /a", USAGE, "--include: '/a'", "paths are relative to the URI or DIR", "write 'a'"),
    ("export data s3://bench/o/ --include ./file", USAGE, "--include: './file'", "paths are relative to the URI or DIR", "write 'file'"),
    ("hydrate s3://bench/in/ out --exclude sub/", USAGE, "--exclude: 'sub/'", "matches nothing", "write 'sub/**'"),
    ("hydrate s3://bench/in/ out --include s3://bench/in/a", USAGE, "--include: 's3://bench/in/a'", "is a URI", "give a pattern relative to"),
    ("hydrate s3://bench/in/ out --endpoint", USAGE, "--endpoint", "needs a value", "--endpoint URL"),
    ("hydrate s3://bench/in/ out --log-level loud", USAGE, "'loud'", "not a log level", "debug, info, warn or error"),
    ("export data s3://bench/o/ --conflict maybe", USAGE, "--conflict", "not 'maybe'", "fail, overwrite or version"),
    ("export data s3://bench/o/ --conflict Fail", USAGE, "cistern: --conflict", "not 'Fail'", "fail, overwrite or version"),
    ("export data s3://bench/o/ --since yesterday", USAGE, "--since", "'yesterday'", "an age as 2h"),
    ("export data s3://bench/o/ --delete-after now", USAGE, "--delete-after", "", "only never is supported"),
    ("export data s3://bench/o/ --storage-class COLD", USAGE, "'COLD'", "400 InvalidStorageClass", "correct --storage-class"),
    # URIs
    ("ls s3:/bench/in/", USAGE, "'s3:/bench/in/'", "no scheme", "write the URI as s3://BUCKET/PREFIX"),
    ("ls s3:\\\\bench\\in", USAGE, "'s3:\\\\bench\\in'", "it has '\\' in place of '/'", "write the URI as"),
    ("ls s3://bench\\in", USAGE, "'s3://bench\\in'", "it has '\\' in place of '/'", "write the URI as"),
    ("ls az://bench/in/", USAGE, "'az://bench/in/'", "unknown scheme", "write the URI as"),
    ("ls minio://bench/in/", USAGE, "'minio://bench/in/'", "unknown scheme", "s3:// with --endpoint"),
    ("ls https://bench.example.com/in/", USAGE, "'https://bench.example.com/in/'", "not a bucket", "--endpoint"),
    ("ls s3://BENCH/in/", USAGE, "'s3://BENCH/in/'", "a-z, 0-9", "write the URI as"),
    ("ls s3://bench.s3.amazonaws.com/in/", USAGE, "'s3://bench.s3.amazonaws.com/in/'", "it has a host name", "name the bucket itself"),
    ("ls gs://storage.googleapis.com/bench/", USAGE, "'gs://storage.googleapis.com/bench/'", "it has a host name", "name the bucket itself"),
    ("ls s3://bench/in/file?versionId=3", EMPTY, "'s3://bench/in/file?versionId=3'", "a URI names no version", "write s3://bench/in/file: the current"),
    ("hydrate s3://bench/in/file#1700000000000000 out", EMPTY, "'s3://bench/in/file#1700000000000000'", "a URI names no version", "write s3://bench/in/file: the current"),
    ("ls s3://user:password@bench/in/", USAGE, "@bench/in/", "credentials do not belong in a URI", "write the URI as"),
    ("ls s3://missing/in/", NOT_FOUND, "s3://missing/in/", "404 NoSuchBucket", "check the bucket"),
    ("ls s3://bench/nothing/", EMPTY, "'s3://bench/nothing/'", "no object is below this prefix", "check the URI and the filters"),
    ("hydrate s3://bench/in out", EMPTY, "'s3://bench/in'", "no object has this key", "write s3://bench/in/"),
    ("hydrate s3://bench/nothing/ out", EMPTY, "'s3://bench/nothing/'", "no object is below this prefix", "--allow-empty"),
    ("export data s3://bench/in/ --include data/*", EMPTY, "--include 'data/*'", "matches no file", "paths below DIR"),
    ("hydrate s3://bench/in/* out", EMPTY, "'s3://bench/in/*'", "a URI has no wildcards", "s3://bench/in/ with --include '*'"),
    ("hydrate s3://bench/in/file-? out", EMPTY, "'s3://bench/in/file-?'", "a URI has no wildcards", "s3://bench/in/ with --include 'file-?'"),
    ("ls s3://bench/**/[ab].bin", EMPTY, "'s3://bench/**/[ab].bin'", "a URI has no wildcards", "s3://bench/ with --include '**/[ab].bin'"),
    ("ls s3://192.168.1.1/in/", USAGE, "s3://192.168.1.1/in/", "400 InvalidBucketName", "check the bucket"),
    ("export data s3://bench/o/ --include *.pt", EMPTY, "--include '*.pt'", "matches no file", "check the patterns"),
    ("export data s3://bench/o/ --include *.pt --dry-run", EMPTY, "--include '*.pt'", "matches no file", "check the patterns"),
    ("export data s3://bench/o/ --include ** --exclude file", EMPTY, "--include '**'", "matches no file", "check the patterns"),
    ("export empty s3://bench/o/", EMPTY, "'empty'", "nothing was sent: it has no regular file", "--allow-empty"),
    ("export data s3://bench/o/ --exclude file", EMPTY, "'data'", "--exclude leaves out all files", "--allow-empty"),
    ("export data s3://missing/o/", NOT_FOUND, "s3://missing/o/file", "404 NoSuchBucket", "check the bucket"),
    # local files
    ("hydrate s3://bench/in/ data/file", USAGE, "'data/file'", "exists and is not a directory", "move it away"),
    ("hydrate s3://bench/in/ /proc/out", NOT_FOUND, "'/proc/out'", "No such file or directory", "use another directory"),
    ("hydrate s3://bench/in/ /proc/1", NOT_FOUND, "'/proc/1'", "No such file or directory", "use another directory"),
    ("hydrate s3://bench/in/ /proc/1/new/out", NOT_FOUND, "'/proc/1/new'", "No such file or directory", "use another directory"),
    ("export data s3://bench/o/ --state /proc/1/state", NOT_FOUND, "'/proc/1/state'", "No such file or directory", "use another directory"),
    ("export data s3://bench/o/ HOME=here", USAGE, "nor HOME", "is an absolute path", "use --state DIR"),
    ("export data s3://bench/o/ HOME=here XDG_STATE_HOME=state", USAGE, "XDG_STATE_HOME", "is an absolute path", "use --state DIR"),
    ("hydrate file:///nowhere/in/ out", NOT_FOUND, "/nowhere/in", "No such file or directory", "check the bucket or directory"),
    ("ls file://HERE/data/file/", USAGE, "HERE/data/file", "Not a directory", "write its path without the '/' at the end", "file:///DIRECTORY"),
    ("hydrate file://HERE/data/file/ out", USAGE, "HERE/data/file", "Not a directory", "write its path without the '/' at the end", "file:///DIRECTORY"),
    ("export nowhere s3://bench/o/", NOT_FOUND, "'nowhere'", "No such file or directory", "export sends a directory"),
    ("export data/file s3://bench/o/", USAGE, "'data/file'", "Not a directory", "--include"),
    ("hydrate s3://bench/in/ dangling", USAGE, "'dangling'", "a symbolic link to a path that does not exist", "replace the symbolic link"),
    ("hydrate s3://bench/in/ dangling/", USAGE, "'dangling'", "a symbolic link to a path that does not exist", "replace the symbolic link"),
    ("hydrate s3://bench/in/ dangling/out", USAGE, "'dangling'", "a symbolic link to a path that does not exist", "replace the symbolic link"),
    ("export data s3://bench/o/ --state dangling", USAGE, "'dangling'", "a symbolic link to a path that does not exist", "replace the symbolic link"),
    ("export data file://HERE/dangling/", USAGE, "HERE/dangling'", "a symbolic link to a path that does not exist", "replace the symbolic link"),
    ("export dangling s3://bench/o/", USAGE, "'dangling'", "a symbolic link to a path that does not exist", "replace the symbolic link"),
    ("hydrate s3://bench/in/ loop/out", USAGE, "'loop/out'", "Too many levels of symbolic links", "replace the symbolic link"),
    (f"hydrate s3://bench/in/ {'n' * 300}", USAGE, "n" * 100, "File name too long", "use shorter names"),
    ("export data s3://bench/o/ --state half", USAGE, "'half", "Not a directory", "move it away"),
    ("hydrate s3://bench/in/ held", USAGE, "'.held.cistern'", "Not a directory", "move it away"),
    ("status nowhere", NOT_FOUND, "'nowhere'", "not a pool", "name a directory"),
    ("doctor --pool relative", ENVIRONMENT, "'relative'", "is not DIR", "absolute DIR"),
    # credentials
    ("ls s3://bench/in/ AWS_SECRET_ACCESS_KEY=wrong", DENIED, "s3://bench/in/", "SignatureDoesNotMatch", "check or renew"),
    ("ls s3://bench/in/ AWS_ACCESS_KEY_ID=wrong", DENIED, "s3://bench/in/", "InvalidAccessKeyId", "check or renew"),
    ("ls s3://bench/in/ AWS_SECRET_ACCESS_KEY=", DENIED, "s3://", "AWS_SECRET_ACCESS_KEY is not set", "set credentials"),
    ("ls s3://bench/in/ AWS_SECRET_ACCESS_KEY= AWS_EC2_METADATA_DISABLED=", DENIED, "s3://", "AWS_SECRET_ACCESS_KEY is not set", "set credentials"),
    ("ls s3://bench/in/ AWS_SESSION_TOKEN=expired", DENIED, "s3://bench/in/", "InvalidTokenId: the store rejected", "check or renew"),
    ("ls s3://bench/in/ --anonymous", DENIED, "s3://bench/in/", "s3:ListBucket denied", "grant the missing permission"),
    ("ls s3://bench/in/ --profile nobody", USAGE, "there is no profile 'nobody'", "with an access key", "name a profile"),
    ("ls s3://bench/in/ --ca-file missing", USAGE, "'missing'", "No such file", "check --ca-file"),
    ("ls s3://bench/in/ --ca-file fifo", USAGE, "'fifo'", "no CA certificate in PEM form", "check --ca-file"),
    ("ls s3://bench/in/ --ca-file data/file", USAGE, "'data/file'", "no CA certificate in PEM form", "check --ca-file"),
    ("ls s3://bench/in/ AWS_ACCESS_KEY_ID= AWS_SECRET_ACCESS_KEY= AWS_CONFIG_FILE=fifo", USAGE, "AWS_CONFIG_FILE: 'fifo'", "is a pipe", "name a regular file"),
    ("ls gs://bench/in/ GOOGLE_APPLICATION_CREDENTIALS=/nowhere", NOT_FOUND, "'/nowhere'", "No such file", "set credentials"),
    ("ls gs://bench/in/ GOOGLE_APPLICATION_CREDENTIALS=fifo", USAGE, "'fifo'", "not JSON", "set credentials"),
    ("ls gs://bench/in/ GOOGLE_APPLICATION_CREDENTIALS=big", USAGE, "'big'", "longer than 1048576 bytes", "set credentials"),
    ("ls gs://bench/in/ GOOGLE_APPLICATION_CREDENTIALS=data/file", USAGE, "'data/file'", "not JSON", "set credentials"),
    ("ls s3://bench/in/ AWS_ACCESS_KEY_ID= AWS_SECRET_ACCESS_KEY= AWS_SHARED_CREDENTIALS_FILE=fifo", USAGE, "AWS_SHARED_CREDENTIALS_FILE: 'fifo'", "is a pipe", "name a regular file"),
    ("ls s3://bench/in/ AWS_ACCESS_KEY_ID= AWS_SECRET_ACCESS_KEY= AWS_SHARED_CREDENTIALS_FILE=big", USAGE, "'big'", "longer than 1048576 bytes", "correct the file"),
    ("ls s3://bench/in/ AWS_ACCESS_KEY_ID= AWS_SECRET_ACCESS_KEY= AWS_SHARED_CREDENTIALS_FILE=data/file", USAGE, "'data/file'", "line 1 is neither [SECTION]", "correct the file"),
    ("ls s3://bench/in/ AWS_ACCESS_KEY_ID= AWS_SECRET_ACCESS_KEY= AWS_SHARED_CREDENTIALS_FILE=/nowhere", NOT_FOUND, "'/nowhere'", "No such file", "correct the file"),
    ("ls s3://bench/in/ AWS_ACCESS_KEY_ID= AWS_SECRET_ACCESS_KEY= AWS_SHARED_CREDENTIALS_FILE=data", USAGE, "'data'", "", "correct the file"),
    ("ls s3://bench/in/ AWS_ACCESS_KEY_ID= AWS_SECRET_ACCESS_KEY= AWS_SHARED_CREDENTIALS_FILE=half", USAGE, "profile 'default'", "has no aws_secret_access_key", "correct the file"),
    ("ls s3://bench/in/ AWS_ACCESS_KEY_ID= AWS_SECRET_ACCESS_KEY= AWS_WEB_IDENTITY_TOKEN_FILE=data/file", USAGE, "AWS_WEB_IDENTITY_TOKEN_FILE is set", "AWS_ROLE_ARN is not", "set credentials"),
    ("ls gs://bench/in/ GOOGLE_APPLICATION_CREDENTIALS=key", USAGE, "'key'", "'client_email' is missing", "set credentials"),
    ("ls gs://bench/in/ CLOUDSDK_CONFIG=loop", USAGE, "'loop/application_default_credentials.json'", "symbolic links", "set credentials"),
    # networks
    ("ls s3://bench/in/ http_proxy=gopher://user:secret@127.0.0.1:1", USAGE, "http://127.0.0.1:SERVER", "the proxy", "http://HOST:PORT"),
    ("ls s3://bench/in/ http_proxy=http://127.0.0.1:HOLE --stall 3s --retries 1", TRANSIENT, "http://127.0.0.1:SERVER", "http_proxy, https_proxy or all_proxy is set", "check the network"),
    ("ls s3://bench/in/ --endpoint http://127.0.0.1:CLOSING", TRANSIENT, "http://127.0.0.1:CLOSING", "closed the connection", "write https://"),
    ("ls s3://bench/in/ --endpoint http://127.0.0.1:SECURE", TRANSIENT, "http://127.0.0.1:SECURE", "the connection", "write https://"),
    ("ls s3://bench/in/ --endpoint 127.0.0.1:SERVER", USAGE, "'127.0.0.1:", "does not begin with http://", "http://HOST:PORT"),
    ("ls s3://bench/in/ --endpoint http://127.0.0.1:SERVER/bench", NOT_FOUND, "s3://bench/in/", "the path of the endpoint", "check the bucket or directory, the endpoint"),
    ("ls s3://bench/in/ --region Europe/West", USAGE, "'Europe/West'", "not a region", "eu-west-1"),
    ("ls s3://bench/in/ --endpoint https://127.0.0.1:SERVER", USAGE, "https://127.0.0.1:", "does not use TLS", "write http://"),
    ("ls s3://bench/in/ --endpoint https://127.0.0.1:SECURE", DENIED, "https://127.0.0.1:SECURE", "is not trusted: ", "check --ca-file"),
    ("ls s3://bench/in/ --endpoint http://127.0.0.1:1 --timeout 3s", TRANSIENT, "http://127.0.0.1:1", "refused", "check the endpoint"),
    ("ls s3://bench/in/ --endpoint http://127.0.0.1:HOLE --stall 12s --retries 1", TRANSIENT, "s3://bench/in/", "", "check"),
    ("hydrate s3://bench/in/ out --endpoint http://127.0.0.1:HOLE --stall 12s --retries 1", TRANSIENT, "s3://bench/in/", "", "check"),
    ("export data s3://bench/o/ --endpoint http://127.0.0.1:HOLE --stall 12s --retries 1", TRANSIENT, "s3://bench/o/", "", "check"),
    ("doctor s3://bench/in/ --endpoint http://127.0.0.1:HALF", ENVIRONMENT, "s3://bench/in/", "did not answer in time", "check the network"),
    ("doctor s3://bench/in/ --endpoint http://127.0.0.1:HOLE", ENVIRONMENT, "http://127.0.0.1:", "", "check"),
]


# The code of an S3 error with status 400, and words of the answer.
WORDS = "words of the store"
STATUSES = {  # of a server that is not a store: exit code, words of the answer
    407: (DENIED, "the proxy wants credentials", "set http_proxy, https_proxy or all_proxy to http://HOST:PORT, or unset it"),
    418: (TRANSIENT, "unexpected status", "check that the endpoint is an object store, and check any proxy"),
    511: (DENIED, "the network wants a login first", "check that the endpoint is an object store, and check any proxy"),
}
CODES = {  # code and message: status of the store, exit code, words of the answer
    ("InvalidToken", WORDS): (400, DENIED, "the store rejected the access key", "check or renew"),
    ("KMS.DisabledException", WORDS): (400, DENIED, f"400 KMS.DisabledException: {WORDS}", "grant the missing permission"),
    ("InvalidRequest", "The object was stored using a form of Server Side Encryption. The correct parameters must be provided."):
        (400, ENVIRONMENT, "a customer-provided key", "exclude the object"),
    ("QuotaExceeded", WORDS): (403, FULL, "no space left", "raise its quota"),
    ("XMinioAdminBucketQuotaExceeded", WORDS): (400, FULL, "no space left", "raise its quota"),
    ("XMinioStorageFull", WORDS): (507, FULL, f"507 XMinioStorageFull: {WORDS}", "free space in the bucket"),
}

@pytest.mark.parametrize("flags, hints", [([], True), (["--requester-pays"], False), (["--anonymous"], False)])
def test_a_denial_hints_at_a_bucket_that_bills_the_requester(tmp_path, flags, hints):
    error = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
    code, said = refused(tmp_path, (403, {"content-type": "application/xml"}, error), "ls", "s3://bench/in/", *flags)
    assert code == DENIED and "403 AccessDenied: s3:ListBucket denied" in said and "grant the missing permission" in said, said
    assert ("if the bucket bills the requester: --requester-pays" in said) == hints, said


PLAIN = {"Go": b"Client sent an HTTP request to an HTTPS server.\n",
         "nginx": b"<html><h1>400</h1>The plain HTTP request was sent to HTTPS port</html>"}


def close_each(listener):
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            connection.recv(1 << 16)  # to close with unread bytes would be a reset
            connection.close()


def answer_half(listener):
    """Sends the begin of a reply, and keeps the connection."""
    kept = []
    with contextlib.suppress(OSError):
        while True:
            kept.append(listener.accept()[0])
            kept[-1].recv(1 << 16)
            kept[-1].sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n<ListBucket")


@pytest.fixture(scope="module")
def ports(tmp_path_factory):
    with minio.Minio() as server, socket.create_server(("127.0.0.1", 0), backlog=64) as hole, \
            socket.create_server(("127.0.0.1", 0)) as closing, socket.create_server(("127.0.0.1", 0)) as half, \
            BucketServer("--tls", tmp_path_factory.mktemp("tls") / "certificate.pem") as tls:
        server.make_bucket("bench")
        threading.Thread(target=close_each, args=(closing,), daemon=True).start()
        threading.Thread(target=answer_half, args=(half,), daemon=True).start()
        yield {"SERVER": server.port, "HOLE": hole.getsockname()[1], "CLOSING": closing.getsockname()[1],
               "HALF": half.getsockname()[1], "SECURE": tls.port}


def run(words, env, folder):
    return run_words([CISTERN, *words], env, folder)


def run_words(words, env, folder):
    """Exit code, output, and the longest silence in seconds: from the first output if that is BEGIN."""
    child = subprocess.Popen(words, env=env, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said, longest, last = b"", 0, time.monotonic()
    while True:
        select.select([child.stdout], [], [], 60)
        now = time.monotonic()
        longest, last = max(longest, now - last), now
        more = os.read(child.stdout.fileno(), 65536)
        if not more:
            return child.wait(), said.decode(), longest
        if not said and more.startswith(BEGIN):
            longest = 0
        said += more


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_wrong_input_is_answered_by_object_cause_and_next_step(ports, tmp_path, row):
    command, code, *told = row
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file").write_text("content")
    (tmp_path / "empty").mkdir()
    (tmp_path / "half").write_text("[default]\naws_access_key_id = key\n")
    (tmp_path / "big").write_bytes(bytes((1 << 20) + 1))
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "key").write_text('{"type": "service_account"}')
    (tmp_path / ".held.cistern").write_text("content")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "link").symlink_to("data")
    (tmp_path / "dangling").symlink_to("nowhere")
    for name, value in {**ports, "HERE": tmp_path}.items():
        command = command.replace(name, str(value))
        told = [part.replace(name, str(value)) for part in told]
    words = command.split()
    given = dict(w.split("=", 1) for w in words if w.startswith(("AWS_", "GOOGLE_", "CLOUDSDK_", "HOME=", "XDG_", "http_proxy")))
    env = clean_environment(**{"AWS_ACCESS_KEY_ID": minio.ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": minio.SECRET_KEY,
                               "AWS_REGION": minio.REGION, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{ports['SERVER']}",
                               "AWS_EC2_METADATA_DISABLED": "true", "HOME": str(tmp_path), **given})
    status, said, silence = run([w for w in words if w.split("=")[0] not in given], env, tmp_path)
    assert status == code, said
    assert all(part in said for part in told), said
    assert silence < SIGN_OF_LIFE_SECONDS and "secret@" not in said, said
    assert os.listdir(tmp_path / "data") == ["file"] and not (tmp_path / "out").exists() and not (tmp_path / ".out.cistern").exists()


@pytest.mark.parametrize("command", ["ls s3://bench/in/", "hydrate s3://bench/in/ out", "export data s3://bench/o/"])
def test_a_timeout_includes_the_wait_for_a_silent_store(ports, tmp_path, command):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file").write_text("content")
    began = time.monotonic()
    words = [*command.split(), "--timeout", "2s", "--endpoint", f"http://127.0.0.1:{ports['HOLE']}"]
    status, said, _ = run(words, of_keys(ports, tmp_path), tmp_path)
    assert status == TRANSIENT and "did not answer in time" in said, said
    assert time.monotonic() - began < 15  # 30 s and more without --timeout


# The store answers the request for its clock, and then nothing.
@pytest.mark.parametrize(("flags", "least", "most"), [((), 7, 18), (("--timeout", "24s"), 7, 18), (("--timeout", "2s"), 1, 9),
                                                      (("--stall", "14s"), 13, 24)])
def test_doctor_waits_for_a_silent_store_as_long_as_its_flags_allow(tmp_path, flags, least, most):
    def answer(request):
        if "list-type" in request.path:
            time.sleep(40)
        return 200, {}, b""

    with Answering(answer) as server:
        env = clean_environment(AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret")
        began = time.monotonic()
        _, said, _ = run(["doctor", "s3://bench/in/", "--endpoint", server.url, *flags], env, tmp_path)
        assert least < time.monotonic() - began < most, said
        assert "did not answer in time" in said, said


def test_a_long_timeout_does_not_make_one_silent_request_longer(ports, tmp_path):
    began = time.monotonic()
    words = ["ls", "s3://bench/in/", "--timeout", "10m", "--retries", "1", "--endpoint", f"http://127.0.0.1:{ports['HOLE']}"]
    status, said, _ = run(words, of_keys(ports, tmp_path), tmp_path)
    assert status == TRANSIENT and "did not answer in time" in said, said
    assert time.monotonic() - began < 60


# In a network of its own: the only name server keeps its socket open, and never answers.
SILENT_NAME_SERVICE = """ip link set lo up
    mount --bind resolv.conf /etc/resolv.conf
    exec python3 -c 'import os, socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
server.set_inheritable(True)
os.write(1, b"begin\\n")
os.execv(sys.argv[1], sys.argv[1:])' "$@" """


@pytest.mark.parametrize("command", ["ls s3://bench/in/ --timeout 13s", "hydrate s3://bench/in/ out --timeout 13s",
                                     "export data s3://bench/o/ --stall 3s --retries 1"])
def test_a_silent_name_service_is_named(tmp_path, command):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file").write_text("content")
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    env = clean_environment(AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret", AWS_REGION="us-east-1", HOME=str(tmp_path))
    words = [*command.split(), "--endpoint", "http://minio.corp:9000", "--path-style"]
    inside = ["unshare", "--net", "--mount", "sh", "-ec", SILENT_NAME_SERVICE, "sh", CISTERN, *words]
    status, said, silence = run_words(inside, env, tmp_path)
    assert status == TRANSIENT and "cannot find the address of 'http://minio.corp:9000'" in said and "check the endpoint, the name service" in said, said
    assert "overloaded" not in said and silence < SIGN_OF_LIFE_SECONDS, (silence, said)


def of_keys(ports, folder, **given):
    return clean_environment(**{"AWS_ACCESS_KEY_ID": minio.ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": minio.SECRET_KEY, "AWS_REGION": minio.REGION,
                                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{ports['SERVER']}", "HOME": str(folder), **given})


@pytest.mark.parametrize("words, code, cause, hint", [
    (["ls", "-r", "s3://bench/in/ "], EMPTY, "ends with a blank", "remove the blank"),
    (["export", "data", "s3://bench/in/ "], USAGE, "ends with a blank", "remove the blank"),
    (["ls", " s3://bench/in/"], USAGE, "begins with a blank", "write the URI as"),
    (["hydrate", "s3://bench/in/", ""], USAGE, "DIR is empty", "write the path of a directory"),
])
def test_blanks_and_nothing_are_named(ports, tmp_path, words, code, cause, hint):
    status, said, _ = run(words, of_keys(ports, tmp_path), tmp_path)
    assert status == code and cause in said and hint in said, said
    assert os.listdir(tmp_path) == []


def test_blanks_around_the_keys_of_the_environment_are_not_part_of_them(ports, tmp_path):
    """A variable that was read from a file ends with its newline."""
    env = of_keys(ports, tmp_path, AWS_ACCESS_KEY_ID=f"{minio.ACCESS_KEY} ", AWS_SECRET_ACCESS_KEY=f"{minio.SECRET_KEY}\n")
    status, said, _ = run(["ls", "s3://bench/"], env, tmp_path)
    assert (status, said) == (0, ""), said


def test_an_empty_directory_is_exported_on_request(ports, tmp_path):
    (tmp_path / "empty").mkdir()
    status, said, _ = run(["export", "empty", "s3://bench/o/", "--allow-empty"], of_keys(ports, tmp_path), tmp_path)
    assert status == 0 and "sent 0" in said, said


def test_an_export_that_did_not_begin_leaves_no_state(tmp_path):
    (tmp_path / "data").mkdir()
    env = clean_environment(AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret", HOME=str(tmp_path))
    status, said, _ = run(["export", "data", "s3://bench/o/", "--since", "yesterday"], env, tmp_path)
    assert status == USAGE and "--since" in said, said
    assert os.listdir(tmp_path) == ["data"]


def refused(folder, answer, *words):
    """Exit code and output of a command against a store that gives this answer to each request."""
    with Answering(lambda request: answer) as server:
        env = clean_environment(AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret")
        return run([*words, "--endpoint", server.url, "--path-style"], env, folder)[:2]


@pytest.mark.parametrize("code", CODES, ids=lambda code: code[0])
def test_a_refusal_by_the_store_is_answered_by_its_cause(tmp_path, code):
    status, exit_code, *told = CODES[code]
    error = "<Error><Code>{}</Code><Message>{}</Message></Error>".format(*code).encode()
    code, said = refused(tmp_path, (status, {"content-type": "application/xml"}, error), "ls", "s3://bench/in/")
    assert code == exit_code and all(part in said for part in told), said


def test_a_bucket_that_bills_the_requester_is_answered_by_the_flag_of_a_project(tmp_path):
    message = "Bucket is a requester pays bucket but no user project provided."
    error = json.dumps({"error": {"code": 400, "message": message, "errors": [{"reason": "required"}]}}).encode()
    code, said = refused(tmp_path, (400, {"content-type": "application/json"}, error), "ls", "gs://bench/in/", "--anonymous")
    assert code == DENIED and "gs://bench/in/" in said and "bills the requester" in said and "--billing-project" in said, said


def test_a_store_of_s3_that_is_asked_as_googles_is_named(tmp_path):
    error = b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code><Message>Access Denied.</Message></Error>'
    with Answering(lambda request: (403, {"content-type": "application/xml"}, error)) as server:
        code, said, _ = run(["ls", "gs://bench/in/", "--endpoint", server.url, "--anonymous"], clean_environment(), tmp_path)
    assert code == DENIED and "the endpoint is an S3 store: write s3:// for gs://" in said and "<" not in said, said


@pytest.mark.parametrize("status", STATUSES)
def test_a_status_of_a_server_between_is_answered_by_its_cause(tmp_path, status):
    exit_code, *told = STATUSES[status]
    code, said = refused(tmp_path, (status, {}, b""), "ls", "s3://bench/in/")
    assert code == exit_code and f"s3://bench/in/: {status}: " in said and all(part in said for part in told), said


def test_the_answer_to_patterns_that_repeat_the_prefix_names_the_base_of_patterns(tmp_path):
    code, said = refused(tmp_path, (200, {}, ERROR_DOCUMENTS["s3"][0]), "ls", "-r", "s3://bench/in/", "--include", "in/one")
    assert code == EMPTY and "include and exclude leave out all 1; patterns match paths below the URI" in said, said


def test_a_web_server_is_not_taken_for_a_store_without_the_key(tmp_path):
    code, said = refused(tmp_path, (404, {"content-type": "text/html"}, b"<html>Not Found</html>"), "ls", "s3://bench/in/")
    assert code == NOT_FOUND and "404: the endpoint is not an object store" in said and "the endpoint and the account" in said, said


@pytest.mark.parametrize("server", PLAIN)
def test_a_server_that_wants_tls_is_answered_by_https(tmp_path, server):
    code, said = refused(tmp_path, (400, {}, PLAIN[server]), "ls", "s3://bench/in/")
    assert code == USAGE and "has TLS" in said and "write https://" in said, said


LISTED = b'"9a0364b9e99bb480dd25e1f0284c8555"'
ERROR_DOCUMENTS = {
    "s3": (b"<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>in/one</Key><ETag>" + LISTED +
           b"</ETag><Size>7</Size><LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents></ListBucketResult>",
           b"<Error><Code>InternalError</Code><Message>words</Message></Error>"),
    "gs": (b'{"items": [{"name": "in/one", "size": "7", "generation": "1", "crc32c": "AAAAAA==", "updated": "2026-01-01T00:00:00Z"}]}',
           b'{"error": {"code": 500, "message": "words"}}'),
}


@pytest.mark.parametrize("scheme", ERROR_DOCUMENTS)
@pytest.mark.parametrize("is_as_long", [False, True])
def test_an_error_document_with_status_200_becomes_no_file(tmp_path, scheme, is_as_long):
    listing, document = ERROR_DOCUMENTS[scheme]
    document = document[:7] if is_as_long else document

    def answer(request):
        is_object = request.path.startswith("/bench/in/one") or "alt=media" in request.path
        return 200, {"etag": LISTED.decode()} if is_object else {}, document if is_object else listing

    with Answering(answer) as server:
        env = clean_environment(AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret", STORAGE_EMULATOR_HOST=server.url)
        code, said, _ = run(["hydrate", f"{scheme}://bench/in/", "out", "--endpoint", server.url, "--path-style"], env, tmp_path)
    cause = "of the received bytes is" if is_as_long else "the reply has"
    assert code == MISMATCH and "one: " in said and cause in said and "check" in said, said
    assert not (tmp_path / "out/one").exists()


def test_a_head_that_is_rejected_without_words_is_answered_by_its_usual_causes(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file").write_text("content")
    _, said = refused(tmp_path, (400, {}, b""), "export", "data", "s3://bench/o/", "--state", "state")
    assert "400: HEAD rejected" in said and "SSE-C" in said and "rename" not in said, said
