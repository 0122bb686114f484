/* SPDX-License-Identifier: Apache-2.0 */
/* err_ids.h - Lists every error id with its advice: the one place where an id is a number. docs/errors.md explains
 * each.
 *
 * An id never changes its meaning; one that is no longer used keeps its paragraph in docs/errors.md and its number
 * stays taken. The advice is one imperative sentence without a full stop, below ERR_ADVICE_MAX bytes. It may take
 * arguments as printf does: err_advise() checks them. Code branches on codes (enum err_code), never on ids. ERR_IDS(X):
 * X(number, NAME, advice), in ascending order. */
#pragma once

#include "util/names.h"

/* clang-format off */
#define ERR_IDS(X) \
    X(1001, URI_INVALID, "write the URI as s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or file:///DIRECTORY") \
    X(1002, ENDPOINT_INVALID, "write an endpoint as https://HOST or http://HOST:PORT, a region as eu-west-1") \
    X(1003, KEY_UNSUPPORTED, "rename the file, or leave it out with an exclude pattern") \
    X(1301, WRONG_REGION, "give the bucket's region, or the server's own address as the endpoint") \
    X(1400, REQUEST_REJECTED, "rename the object if the store cannot hold its key; otherwise report the store's words") \
    X(1401, CREDENTIALS_REJECTED, "check or renew the credentials, and check that they are for this endpoint") \
    X(1403, ACCESS_DENIED, "grant the missing permission, or use other credentials") \
    X(1404, OBJECT_NOT_FOUND, "check the key; run the same command again if the object was deleted after it was listed") \
    X(1405, BUCKET_NOT_FOUND, "check the bucket or directory, the endpoint and the account") \
    X(1406, KEY_NOT_FOUND, "check the key; for all objects below a prefix write %s://%.*s%s%.*s/") \
    X(1408, STORE_TIMEOUT, "check the network and the load of the store, then try again") \
    X(1409, OBJECT_CHANGED, "run the same command again to list the source again") \
    X(1410, OBJECT_BUSY, "try again after the other request on this object has ended") \
    X(1412, OBJECT_EXISTS, "choose another name, or allow overwriting") \
    X(1420, STORE_UNSUPPORTED, "use a store that supports this request; for exports, allow HEAD (s3:GetObject, s3:ListBucket) or overwriting") \
    X(1422, CHECKSUM_MISMATCH, "check the object in the bucket; use --verify size if the store's ETags are not MD5 digests") \
    X(1423, UPLOAD_CORRUPTED, "send the file again; if it fails again, check the network and this machine's memory") \
    X(1424, OBJECT_ARCHIVED, "restore the object (aws s3api restore-object), or exclude it") \
    X(1425, STORAGE_CLASS_UNKNOWN, "correct --storage-class (export.storageClass of a volume), or omit it to use the bucket's class") \
    X(1426, OBJECT_ENCRYPTED, "exclude the object, or store it without a customer-provided key (SSE-C): Cistern has no such key") \
    X(1427, STORE_FULL, "free space in the bucket or raise its quota, then run the same command again") \
    X(1428, REJECTED_WITHOUT_REASON, "check the region and the session token, and whether the port has TLS; an object with a customer key (SSE-C) cannot be read") \
    X(1429, STORE_THROTTLED, "lower the concurrency") \
    X(1430, PAYER_MISSING, "name the project to bill: --billing-project, or requesterPays of the BucketSource") \
    X(1500, STORE_FAILED, "try again after the store has recovered") \
    X(1501, CATALOG_CORRUPT, "run again with --no-resume to start over") \
    X(1502, CATALOG_VERSION, "use the version that wrote it, or run again with --no-resume") \
    X(1503, OTHER_RUN_UNFINISHED, "repeat that command to finish it, or use --no-resume to start over") \
    X(1504, KEY_LISTED_TWICE, "run the same command again; if two prefixes collide, give each its own sub-path") \
    X(1505, JOURNAL_CORRUPT, "run again with --no-resume to start over") \
    X(1510, SOURCE_TOO_LARGE, "%s; give it more space, or select less with include and exclude") \
    X(1511, HYDRATE_RUNNING, "wait for it or stop it, then run the same command again") \
    X(1512, KEY_NOT_A_PATH, "exclude the object, or rename its key") \
    X(1513, OBJECTS_FAILED, "run the same command again to %s") \
    X(1514, OBJECT_DIRECTORY_CONFLICT, "exclude one of the two, or rename the key: a directory cannot hold both") \
    X(1515, OBJECT_TOO_LARGE, "exclude the object, and report the listing to the operator of the store") \
    X(1516, BUFFER_MEMORY, "raise the limit of memory, or hydrate with --memory 4Mi --concurrency 8") \
    X(1517, DIRECTORY_NOT_LOCKABLE, "use a file system with locks (for NFS: mount it with locks)") \
    X(1518, DIRECTORY_REPLACED, "run the same command again: the directory was moved or removed during the run") \
    X(1519, CATALOG_PAGE_UNREADABLE, "check the disk (dmesg), then run again with --no-resume") \
    X(1520, DISK_FULL, "free space or raise the quota, then run the same command again") \
    X(1521, DISK_ERROR, "check the kernel log for disk errors (dmesg), then run the same command again") \
    X(1522, READ_ONLY_DISK, "remount it writable (dmesg says why it is read-only), then run the same command again") \
    X(1523, PERMISSION_DENIED, "grant the access to the user that runs this, or use another directory, then run the same command again") \
    X(1524, INTERRUPTED, "run the same command again: a signal interrupted it") \
    X(1525, WRONG_FILE_TYPE, "move it away, then run the same command again") \
    X(1526, STORE_REFUSES_ALL, "wait until the store recovers, or lower --concurrency, then run the same command again") \
    X(1527, FOREIGN_FILE, "move the file away, or replace such files with --overwrite") \
    X(1528, STATE_FILE_INVALID, "remove it, then run the same command again") \
    X(1529, FILES_KEPT, "move the files away or use --overwrite, then run the same command again") \
    X(1530, SOURCE_EMPTY, "check the URI and the filters; to fill from an empty source: hydrate --allow-empty, or onEmpty: allow") \
    X(1531, SYMLINK_IN_THE_WAY, "replace the symbolic link, or use a path without it, then run the same command again") \
    X(1532, PATH_TOO_LONG, "use shorter names, then run the same command again") \
    X(1533, FILE_SIZE_LIMIT, "raise the limit of file sizes (ulimit -f), or use a file system with larger files; run the same command again") \
    X(1534, DIRECTORY_UNUSABLE, "use another directory: this one was removed, or its file system stores no files, such as /proc") \
    X(1601, REPLY_INVALID, "check that the endpoint is an object store, and check any proxy in between") \
    X(1611, STORE_UNREACHABLE, "check the endpoint, the name service and any proxy") \
    X(1612, REPLY_TIMEOUT, "check the network, and whether the store is overloaded") \
    X(1613, CERTIFICATE_UNTRUSTED, "check --ca-file and the certificate of the store") \
    X(1614, CONNECTION_LOST, "check the network, and any proxy that cuts or compresses transfers") \
    X(1615, NOT_HTTP, "check that the endpoint is an object store, and check any proxy in between") \
    X(1616, TOO_MANY_OPEN_FILES, "raise the limit of open files (ulimit -n), or lower the concurrency") \
    X(1617, ADDRESS_BLOCKED, "use the store's own address, or let an administrator add this one to endpoints.allowAddresses of the chart") \
    X(1618, TOKEN_WITHHELD, "leave the endpoint out, or let an administrator add it to endpoints.trusted of the chart") \
    X(1619, ENDPOINT_WITHOUT_TLS, "write http:// for https:// in the endpoint, or the port that has TLS") \
    X(1620, ENDPOINT_WITH_TLS, "write https:// for http:// in the endpoint if its port has TLS; otherwise check that it is an object store") \
    X(1621, PROXY_INVALID, "set http_proxy, https_proxy or all_proxy to http://HOST:PORT, or unset it") \
    X(1701, NO_CREDENTIALS, "set credentials in the environment, name a profile or a key file, or use --anonymous") \
    X(1702, TOKEN_EXCHANGE_FAILED, "check the credentials, and that this machine, pod or role may use them") \
    X(1703, CREDENTIALS_FILE_INVALID, "correct the file, or name another one; the environment's credentials come before it") \
    X(1901, CLOCK_SKEW, "set the clock and run a time service (chrony or systemd-timesyncd)") \
    X(1902, BROKER_CALLER_UNKNOWN, "use the token of a running pod, with audience " NAME_AUDIENCE_BROKER) \
    X(1903, BROKER_OTHER_VOLUME, "let only Jobs of the volume, and its node, ask for its credentials") \
    X(1904, SERVICE_ACCOUNT_NOT_ANNOTATED, "kubectl annotate serviceaccount -n %s %s " NAME_ANNOTATION_ALLOW_BUCKET_ACCESS "=true") \
    X(1905, BROKER_NAMESPACE_DENIED, "kubectl create rolebinding cistern-credentials -n %s --clusterrole=cistern-credentials --serviceaccount=%s:cistern-controller") \
    X(1906, IDENTITY_NOT_FOUND, "create it, or name another one in a new BucketSource") \
    X(1907, SECRET_INVALID, "set access_key_id and secret_access_key (s3://), or service_account.json (gs://)") \
    X(1908, IDENTITY_UNSUPPORTED, "%s; docs/identity.md lists the methods") \
    X(1909, BROKER_UNREACHABLE, "check that the controller runs, and the Service cistern-broker") \
    X(1910, BROKER_THROTTLED, "retry in %u s, with the token of a running pod") \
    X(1911, EXPORT_IDENTITY_GONE, "create the identity again, or set exportSecret in the StorageClass") \
    X(1912, CREDENTIAL_NOT_FOR_ENDPOINT, "remove the endpoint, use access keys in a Secret (s3://), or add the endpoint to endpoints.trusted of the chart") \
    X(2001, PARAMETER_UNKNOWN, "correct or remove the name; a field of a BucketSource belongs in a BucketSource that the claim names") \
    X(2002, PARAMETER_INVALID, "correct the value; help: docs/reference/storageclass.md, kubectl explain bucketsource.spec, `cistern export --help`") \
    X(2003, PARAMETER_UNSUPPORTED, "remove it, or use the driver in Kubernetes") \
    X(2004, VOLUME_RECORD_VERSION, "upgrade Cistern on this node again") \
    X(2005, VOLUME_RECORD_CORRUPT, "restore the file or the volume's directory from a backup, or delete the volume") \
    X(2006, VOLUME_EXISTS, "delete the existing volume, or use another name") \
    X(2007, VOLUME_CHANGING, "retry") \
    X(2008, PARAMETER_IMMUTABLE, "change only concurrency, bandwidth and onDataLoss") \
    X(2009, EXPORT_POLICY_EMPTY, "correct include, exclude, trigger, onFailure or deadline so that files are exported") \
    X(2010, VOLUME_NOT_ATTACHED, "publish or hydrate the volume: its driver then attaches it") \
    X(2011, VOLUME_COVERED, "unmount that file system") \
    X(2012, IMAGE_UNFORMATTED, "delete the volume, or restore the pool") \
    X(2013, VOLUME_DIRECTORY, "give the directory of a volume, POOL/volumes/ID; cistern status --pool POOL lists them") \
    X(2020, QUOTA_UNSUPPORTED, "mount the pool with prjquota, or let it use loop devices (modprobe loop)") \
    X(2021, POOL_DIRECTORY_NOT_EMPTY, "give the pool an empty directory") \
    X(2022, POOL_RECORD_CORRUPT, "restore the file, or move the pool's content away") \
    X(2023, POOL_RECORD_VERSION, "upgrade Cistern on this node again") \
    X(2024, QUOTA_NOT_ENFORCED, "mount the pool with prjquota, as when the volume was made") \
    X(2025, PROGRAM_MISSING, "install xfsprogs, or use an image that has it") \
    X(2026, POOL_NAME_DIFFERS, "configure each pool with the path and the name that it was made with") \
    X(2027, VOLUME_SIZE, "request at least %d bytes") \
    X(2028, POOL_FULL, "free space in the pool, or request less") \
    X(2029, VOLUME_GROW_LIMIT, "delete volumes of this node, or request less") \
    X(2030, BIND_LEAVES_QUOTA, "use access: auto in a new volume, or give the pool loop devices (modprobe loop)") \
    X(2034, DIRECT_IO_UNSUPPORTED, "use directIO: auto, which writes through the page cache there") \
    X(2040, NO_DISK, "compare device or devices of the pool with the output of `lsblk --output +MODEL,PARTLABEL` on the node") \
    X(2041, DISK_NOT_BLANK, "choose another disk, or add its exact serial to `wipe` of an array if its content may be lost") \
    X(2042, ARRAY_DISK_MISSING, "replace the disk; the array's data is lost: run mdadm --zero-superblock on the other members") \
    X(2043, POOL_NOT_MOUNTED, "mount the pool's disk there, or set requireMount: false for the pool") \
    X(2044, POOL_IDENTITY_UNKNOWN, "wait: the driver retries until the API server answers") \
    X(2045, POOL_REPLACED, "mount the disk of that pool; if it is lost, annotate the CisternPool with cistern.io/replace-pool=UUID, or use --forget-pool UUID") \
    X(2046, POOL_GIVEN_UP, "set onDataLoss: rehydrate, or delete the claim; the volume's data is lost") \
    X(2047, ARRAY_NOT_XFS, "repair it with xfs_repair, or clear the array's first MiB if its content may be lost") \
    X(2048, POOL_DIRECTORY_MISSING, "create the directory on the node, or mount the pool's disk there") \
    X(2110, VOLUME_NOT_FOUND, "check the volume id; the volume was deleted or never created") \
    X(3001, POOL_ABSENT, "mount the disk of the volume's pool, or configure that pool again") \
    X(3002, VOLUME_DATA_LOST, "set onDataLoss: rehydrate, or delete the claim") \
    X(3010, MOUNT_BUSY, "unpublish the volume first") \
    X(3011, VOLUME_LOCKED, "retry") \
    X(3012, MOUNTS_RECORD_CORRUPT, "delete all pods of this node that use the volume; then it can be mounted again") \
    X(3013, VOLUME_IN_USE, "delete the pods that use the volume") \
    X(3014, FSGROUP_DIFFERS, "give all pods of the volume the same fsGroup") \
    X(3015, VOLUME_NOT_READY, "wait: the caller retries") \
    X(3016, HYDRATION_FAILED, "fix the cause; the hydration is retried") \
    X(3017, FSGROUP_UNSUPPORTED, "set access: auto, or remove fsGroup from the pod") \
    X(3018, PUBLISH_CANCELLED, "no action is needed") \
    X(3019, MOUNT_UNRESPONSIVE, "wait; if it persists, delete all pods of this node that use the volume") \
    X(3020, STAGING_NOT_RESTORED, "delete all pods of this node that use the volume: it is mounted again for the next pod") \
    X(3021, MOUNTS_RECORD_VERSION, "upgrade this node's driver again") \
    X(3022, VOLUME_RELEASING, "use another volume, or set the reclaim policy of its PersistentVolume to Retain") \
    X(3023, RELEASE_HELD, "mount its disk, or discard them: kubectl annotate pv %s cistern.io/discard-unexported=%s") \
    X(3024, CONTEXT_DIFFERS, "give all pods of the volume the same SELinux label, or wait until the other pods are gone") \
    X(3025, CONTEXT_UNSUPPORTED, "create the volume again, or set seLinuxChangePolicy: Recursive in the pod's securityContext") \
    X(3026, USER_NAMESPACE_UNSUPPORTED, "upgrade the node to Linux 6.12, remove hostUsers from the pod, or use a class with access: bind") \
    X(3101, KEEPER_UNREACHABLE, "start cistern-keeper, or end it if it does not answer (in a cluster: delete its pod on this node), and try again") \
    X(3102, MOUNT_EXISTS, "unmount it first: the options of a mount cannot change") \
    X(3103, CAPABILITIES_MISSING, "run the mount as root with the capabilities that docs/errors.md lists") \
    X(3104, FILE_HANDLES_UNSUPPORTED, "use ext4, XFS, btrfs or tmpfs") \
    X(3105, PASSTHROUGH_UNSUPPORTED, "use --passthrough=auto, or Linux 6.9 and a file system that is not stacked") \
    X(3106, FUSE_DEVICE_MISSING, "load the kernel module fuse, and give this container /dev/fuse") \
    X(3107, SOCKET_LISTEN, "create its directory, writable for this user") \
    X(4003, EXPORT_RUNNING, "wait until it ends; `cistern status` shows its progress") \
    X(4006, LEASES_UNSUPPORTED, "run the export as root, or with CAP_LEASE, on a local file system") \
    X(4007, PATH_NOT_A_KEY, "%s it, or leave it out with an exclude pattern") \
    X(4008, EXPORT_DEADLINE, "close files that are open for writing, then export again (on the command line: or raise --deadline); the files are kept") \
    X(4011, CHECKSUM_UNAVAILABLE, "look at the object, then export again; the file is kept") \
    X(4012, FILE_NOT_EXPORTED, "fix the cause and export again; the file is kept") \
    X(4013, MARKER_WITHHELD, "fix the cause and export again; the marker is sent after all files of its checkpoint") \
    X(4014, MARKER_NOT_WITHDRAWN, "allow the export to read and delete the marker, or export to a new prefix") \
    X(4015, FILE_REMOVED_DURING_EXPORT, "export again") \
    X(4016, NO_FILE_MATCHES, "check the patterns: one without a slash matches names at any depth, another one paths below DIR") \
    X(4017, NOTHING_TO_EXPORT, "check the path, and whether its file system is mounted; to accept an empty DIR: --allow-empty") \
    X(4020, VERDICT_CORRUPT, "remove that file; the next export compares all files with the bucket") \
    X(4022, UPLOAD_DIFFERS, "compare the object with the file, then export again; the file is kept") \
    X(4023, EXPORT_RECORD_VERSION, "use the Cistern that wrote it, or a newer one") \
    X(4024, WRITES_LOST, "write the file again, or touch it if its content is right; then export again") \
    X(4030, EXPORT_PENDING, "wait: the caller retries") \
    X(4031, EXPORT_INTERRUPTED, "wait: the export is retried in %s") \
    X(4032, EXPORT_DUE, "wait, or discard them: kubectl annotate pv %s cistern.io/discard-unexported=%s") \
    X(4409, OBJECT_NOT_OURS, "remove one of the two, or set export.conflict (--conflict) to overwrite or version; both are kept") \
    X(5001, KUBERNETES_CONFIG, "run in a pod, or check the file of --kubeconfig") \
    X(5002, API_SERVER_UNREACHABLE, "check that the API server at %.*s runs and can be reached") \
    X(5003, API_DENIED, "check the roles of the service account") \
    X(5004, API_REPLY_INVALID, "check that the CRDs are installed, and any proxy before the API server") \
    X(5005, API_SERVER_BUSY, "no action needed: the request is retried") \
    X(5006, API_OBJECT_INVALID, "install the CRDs of this version") \
    X(5007, API_LIMIT, "check the load and the latency of the API server") \
    X(5101, CLAIM_GONE, "no action is needed: nothing was created") \
    X(5102, POOL_UNHEALTHY, "fix the pool; the scheduler tries other nodes") \
    X(5103, NODE_REFUSED, "upgrade the node's driver to the version of the controller") \
    X(5104, POOL_DISK_REPLACED, "wait: the next call creates the volume on the new disk") \
    X(5105, VOLUME_STEP_PENDING, "retry") \
    X(5106, SOURCE_NOT_FOUND, "create the BucketSource; the claim waits for it") \
    X(5107, NODE_HAS_NO_POOL, "use a node that has the pool; the scheduler tries other nodes") \
    X(5108, NODE_PENDING, "wait; check that the driver runs on that node") \
    X(5109, NODE_AWAY, "bring the node back, or wait until the volume counts as lost") \
    X(5110, VOLUME_LOST, "bring the node back to recover the volume, or delete the claim") \
    X(5111, CONTROLLER_STARTING, "retry in a few seconds") \
    X(5112, VOLUME_RETAINED, "set the reclaim policy to Delete and release the claim") \
    X(5114, POOL_NOT_REPORTED, "wait; check that the driver runs on that node") \
    X(5201, CLAIM_SOURCE_NOT_FOUND, "create it; the claim waits (without data and export: create the claim again without this reference)") \
    X(5202, SOURCE_OTHER_NAMESPACE, "name a BucketSource of the claim's own namespace") \
    X(5203, CLASS_BINDS_IMMEDIATELY, "create a class with WaitForFirstConsumer and a new claim") \
    X(5204, CLASS_OTHER_DRIVER, "use a class of " NAME_DRIVER) \
    X(5205, NODE_GONE, "no action needed: the pod is rescheduled") \
    X(5206, VOLUME_LOST_FILLING, "no action needed: the volume is created again") \
    X(5207, CLAIM_BOUND_ELSEWHERE, "no action needed: the volume that was being filled is deleted") \
    X(5208, CLAIM_REFERENCE_INVALID, "delete the claim and create it again with a dataSourceRef of apiGroup: cistern.io, kind: BucketSource, and a name of its own namespace") \
    X(5209, CLAIM_ANNOTATION_UNKNOWN, "correct or remove it; it belongs below metadata.annotations, not metadata.labels") \
    X(5210, CLAIM_UNSUPPORTED, "delete the claim and create it again %s") \
    X(5211, CLAIM_POOL_NOT_FOUND, "give a node the labels of pools[].nodeSelector in the chart, or name another pool in a new StorageClass") \
    X(5212, CLASS_NOT_FOUND, "create the class, or the claim again with a class that kubectl get storageclass lists") \
    X(5213, SOURCE_SUSPENDED, "set spec.suspend of the BucketSource to false") \
    X(5310, CONTROLLER_RUNNING, "delete its pods with kubectl delete pod --force, then uninstall again") \
    X(9010, DEMO_NEEDS_ROOT, "run it with sudo") \
    X(9011, DEMO_NO_FUSE, "load the kernel's fuse module; `cistern doctor` shows what else is missing") \
    X(9012, PROGRAM_NOT_INSTALLED, "it belongs beside the program cistern") \
    X(9013, DEMO_LEFTOVERS, "unmount every mount below '%s', then remove the directory") \
    X(9101, POOL_NOT_FOUND, "name the pool with --pool DIR") \
    X(9102, DIRECTORY_UNKNOWN, "name a directory that a run fills or has filled, or a volume id and its --pool") \
    X(9103, OUTPUT_FAILED, "the output is incomplete: check its file, disk or pipe")
/* clang-format on */

enum err_id {
#define ERR_ID_ENUM(number, name, advice) CIS_##name = (number),
    ERR_IDS(ERR_ID_ENUM)
#undef ERR_ID_ENUM
};

/* The advices as constants, so that the compiler checks the arguments of err_advise() against them. */
#define ERR_ID_ADVICE(number, name, advice) static const char CIS_##name##_ADVICE[] __attribute__((unused)) = advice;
ERR_IDS(ERR_ID_ADVICE)
#undef ERR_ID_ADVICE
