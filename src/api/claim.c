/* SPDX-License-Identifier: Apache-2.0 */
#include "api/claim.h"
#include "api/source.h"
#include "util/names.h"

#define LAST_APPLIED "kubectl.kubernetes.io/last-applied-configuration"

static const char *const annotations_known[] = {
    NAME_ANNOTATION_SOURCE,
    NAME_ANNOTATION_HYDRATION,
    NAME_ANNOTATION_EXPORT_POLICY,
    NAME_ANNOTATION_ON_DATA_LOSS,
};

static int check_annotation(struct str name, struct err *err)
{
    const char *nearest = annotations_known[0];
    size_t least = SIZE_MAX;
    if (!str_starts(name, STR(NAME_API_GROUP "/")))
        return 0;
    for (size_t i = 0; i < countof(annotations_known); i++) {
        if (str_eq(name, str_of(annotations_known[i])))
            return 0;
        if (str_is_nearer(str_sub(name, 0, STR_DISTANCE_MAX), str_of(annotations_known[i]), &least))
            nearest = annotations_known[i];
    }
    return err_fail(err, ERR_INVALID, CIS_CLAIM_ANNOTATION_UNKNOWN,
                    "unknown annotation '%.*s'; the nearest known one is '%s'", STR_FMT(str_sub(name, 0, 100)),
                    nearest);
}

static int check_annotations(const json *annotations, struct err *err)
{
    int r = 0;
    for (void *i = json_iter(annotations); i && r == 0; i = json_iter_next(annotations, i))
        r = check_annotation(json_iter_key(i), err);
    return r;
}

static int check_modes(const json *claim, struct err *err)
{
    const json *modes = json_at(claim, "spec.accessModes");
    for (size_t i = 0; i < json_count(modes); i++) {
        struct str mode;
        if (!json_as_str(json_item(modes, i), &mode) || !str_ends(mode, STR("Many")))
            continue;
        return err_fail(err, ERR_INVALID, CIS_CLAIM_UNSUPPORTED,
                        "access mode %.*s: unsupported: a volume is on the disk of one node", STR_FMT(mode));
    }
    if (str_eq(json_str_at(claim, "spec.volumeMode"), STR("Block")))
        return err_fail(err, ERR_INVALID, CIS_CLAIM_UNSUPPORTED, "volumeMode Block: unsupported: a volume has files");
    return 0;
}

/* ---- a data source that the API server dropped ------------------------------------------------------------------- */

/* The `field` of the spec that the user applied, if it names a BucketSource. */
static const json *applied_source(const json *spec, const char *field)
{
    const json *named = json_at(spec, field);
    return str_eq(json_member_str(named, "kind"), STR(API_SOURCE_KIND)) ? named : NULL;
}

/* The API server drops a dataSource of another group than its own. It also drops a dataSourceRef with a namespace, if
 * its feature is off. Neither is reported. Only kubectl's record of the applied claim still has them. */
static int check_dropped(const json *claim, const json *annotations, struct err *err)
{
    auto_json applied = NULL;
    struct err ignored;
    struct str text = json_member_str(annotations, LAST_APPLIED);
    if (json_at(claim, "spec.dataSourceRef") || text.len == 0 ||
        json_parse(text, "the applied claim", &applied, &ignored) < 0)
        return 0;
    const json *spec = json_at(applied, "spec"), *old = applied_source(spec, "dataSource");
    if (old)
        return err_fail(err, ERR_INVALID, CIS_CLAIM_REFERENCE_INVALID,
                        "dataSource names BucketSource '%.*s', which the API server drops from this field",
                        STR_FMT(json_member_str(old, "name")));
    const json *ref = applied_source(spec, "dataSourceRef");
    if (ref)
        return err_fail(err, ERR_INVALID, CIS_CLAIM_REFERENCE_INVALID,
                        "dataSourceRef names BucketSource '%.*s' of namespace '%.*s', which the API server drops "
                        "without its feature CrossNamespaceVolumeDataSource",
                        STR_FMT(json_member_str(ref, "name")), STR_FMT(json_member_str(ref, "namespace")));
    return 0;
}

int api_claim_check(const json *claim, struct err *err)
{
    const json *annotations = json_at(claim, "metadata.annotations");
    int r = check_annotations(annotations, err);
    if (r == 0)
        r = check_modes(claim, err);
    return r < 0 ? r : check_dropped(claim, annotations, err);
}
