/* SPDX-License-Identifier: Apache-2.0 */
#include "api/claim.h"
#include "util/names.h"

static const char *const annotations_known[] = {
    NAME_ANNOTATION_SOURCE,
    NAME_ANNOTATION_HYDRATION,
    NAME_ANNOTATION_EXPORT_POLICY,
    NAME_ANNOTATION_ON_DATA_LOSS,
};

static bool is_known(struct str name)
{
    for (size_t i = 0; i < countof(annotations_known); i++)
        if (str_eq(name, str_of(annotations_known[i])))
            return true;
    return false;
}

static int check_annotation(struct str name, struct err *err)
{
    struct str prefix = STR(NAME_API_GROUP "/"), own = str_from(name, prefix.len);
    const char *nearest = NULL;
    size_t least = SIZE_MAX;
    if (!str_starts(name, prefix) || is_known(name))
        return 0;
    for (size_t i = 0; i < countof(annotations_known); i++)
        if (str_is_nearer(str_of(annotations_known[i] + prefix.len), own, &least))
            nearest = annotations_known[i];
    return err_fail(err, ERR_INVALID, CIS_CLAIM_ANNOTATION_UNKNOWN, "unknown annotation '%.*s%s%s'",
                    STR_FMT(str_sub(name, 0, 100)), nearest ? "'; the nearest known one is '" : "",
                    nearest ? nearest : "");
}

/* A label is not read. */
static int check_label(struct str name, const json *annotations, struct err *err)
{
    auto_mem char *text = str_dup(name);
    if (!is_known(name) || json_member(annotations, text))
        return 0;
    return err_fail(err, ERR_INVALID, CIS_CLAIM_ANNOTATION_UNKNOWN, "'%s' is a label, and has no effect", text);
}

static int check_names(const json *claim, struct err *err)
{
    const json *annotations = json_at(claim, "metadata.annotations"), *labels = json_at(claim, "metadata.labels");
    int r = 0;
    for (void *i = json_iter(annotations); i && r == 0; i = json_iter_next(annotations, i))
        r = check_annotation(json_iter_key(i), err);
    for (void *i = json_iter(labels); i && r == 0; i = json_iter_next(labels, i))
        r = check_label(json_iter_key(i), annotations, err);
    return r;
}

/* Another advice than that of modes. */
static int refuse(struct err *err, const char *advice, const char *sentence)
{
    err_set(err, ERR_INVALID, "%s", sentence);
    return err_advise(err, CIS_CLAIM_UNSUPPORTED, advice);
}

/* Volume populators of others may fill a claim of any class: only what no populator fills is refused. */
static int check_copy(const json *claim, struct err *err)
{
    const char *advice = "with a BucketSource as dataSourceRef, or without a data source";
    struct str kind = json_str_at(claim, "spec.dataSourceRef.kind"),
               group = json_str_at(claim, "spec.dataSourceRef.apiGroup");
    if (!group.len && str_eq(kind, STR("PersistentVolumeClaim")))
        return refuse(err, advice, "dataSource: a volume cannot be cloned");
    if (str_eq(group, STR("snapshot.storage.k8s.io")))
        return refuse(err, advice, "dataSource: there are no snapshots of volumes");
    return 0;
}

static int check_modes(const json *claim, struct err *err)
{
    const json *modes = json_at(claim, "spec.accessModes");
    for (size_t i = 0; i < json_count(modes); i++) {
        struct str mode;
        if (!json_as_str(json_item(modes, i), &mode) || !str_ends(mode, STR("Many")))
            continue;
        err_set(err, ERR_INVALID, "access mode %.*s: unsupported: a volume is on the disk of one node", STR_FMT(mode));
        return err_advise(err, CIS_CLAIM_UNSUPPORTED, "with ReadWriteOncePod or ReadWriteOnce");
    }
    if (json_at(claim, "spec.selector"))
        return refuse(err, "without selector", "selector: unsupported: volumes are made for their claim");
    if (str_eq(json_str_at(claim, "spec.volumeMode"), STR("Block")))
        return refuse(err, "with volumeMode Filesystem", "volumeMode Block: unsupported: a volume has files");
    return 0;
}

/* ---- a data source that the API server dropped ------------------------------------------------------------------- */

/* Did a user set this field of the spec? managedFields have the names of all fields that were sent. */
static bool was_set(const json *claim, const char *field)
{
    const json *managers = json_at(claim, "metadata.managedFields");
    for (size_t i = 0; i < json_count(managers); i++)
        if (json_member(json_member(json_member(json_item(managers, i), "fieldsV1"), "f:spec"), field))
            return true;
    return false;
}

/* The API server drops a dataSource of another group than its own. It also drops a dataSourceRef with a namespace, if
 * its feature is off. Neither is reported. */
static int check_dropped(const json *claim, struct err *err)
{
    if (json_at(claim, "spec.dataSourceRef"))
        return 0;
    if (was_set(claim, "f:dataSource"))
        return err_fail(err, ERR_INVALID, CIS_CLAIM_REFERENCE_INVALID,
                        "dataSource: the API server dropped it: it takes claims and snapshots only");
    if (was_set(claim, "f:dataSourceRef"))
        return err_fail(err, ERR_INVALID, CIS_CLAIM_REFERENCE_INVALID,
                        "dataSourceRef.namespace: the API server dropped dataSourceRef: its feature "
                        "CrossNamespaceVolumeDataSource is off");
    return 0;
}

int api_claim_check(const json *claim, struct err *err)
{
    int r = check_names(claim, err);
    if (r == 0)
        r = check_modes(claim, err);
    if (r == 0)
        r = check_copy(claim, err);
    return r < 0 ? r : check_dropped(claim, err);
}
