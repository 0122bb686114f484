/* SPDX-License-Identifier: Apache-2.0 */
#include "export/verdict.h"
#include "hydrate/status.h"
#include "private.h"
#include "util/clock.h"
#include <inttypes.h>
#include <stdio.h>

/* "61% (86.0/140 GiB) at 7.1 GiB/s, 8 s left" */
static void describe(const struct hydrate_status *s, char *ret)
{
    char done[BYTES_TEXT_MAX], total[BYTES_TEXT_MAX], rate[BYTES_TEXT_MAX], left[TIME_TEXT_MAX] = "";
    uint64_t percent = s->bytes_total ? (uint64_t)(100.0 * (double)s->bytes_done / (double)s->bytes_total) : 0;
    bool known = s->eta_seconds != UINT64_MAX && s->eta_seconds < UINT64_MAX / NS_PER_SECOND;
    if (known)
        duration_text(s->eta_seconds * NS_PER_SECOND, left);
    snprintf(ret, HEALTH_TEXT_MAX, "%s: %" PRIu64 "%% (%s/%s, %" PRIu64 "/%" PRIu64 " objects) at %s/s%s%s%s",
             hydrate_phase_name(s->phase), percent, bytes_text(s->bytes_done, done), bytes_text(s->bytes_total, total),
             s->objects_done, s->objects_total, bytes_text(s->bytes_per_second, rate), known ? ", " : "", left,
             known ? " left" : "");
}

bool volume_read_progress(const struct volume *v, char *ret_text, bool *ret_failed)
{
    struct err err;
    *ret_failed = false;
    if (!spec_is_hydrated(v->spec))
        return true;
    auto_mem struct hydrate_status *s = xcalloc(1, sizeof *s);
    int r = hydrate_status_read(v->dir, s, &err);
    if (r == -ERR_NOT_FOUND)
        snprintf(ret_text, HEALTH_TEXT_MAX, "hydration has not started");
    else if (r < 0)
        snprintf(ret_text, HEALTH_TEXT_MAX, "%.*s", HEALTH_TEXT_MAX - 1, err.text);
    else if (s->phase == HYDRATE_DONE)
        return true;
    else if (s->phase == HYDRATE_FAILED && s->has_error) {
        snprintf(ret_text, HEALTH_TEXT_MAX, "%.*s", HEALTH_TEXT_MAX - 1, s->error.message);
        *ret_failed = true;
    } else
        describe(s, ret_text);
    return false;
}

bool volume_is_hydrated(const struct volume *v)
{
    char text[HEALTH_TEXT_MAX];
    bool failed;
    return volume_read_progress(v, text, &failed);
}

/* ---- health ------------------------------------------------------------------------------------------------------ */

static void add_hydration(const struct volume *v, struct health *h)
{
    char text[HEALTH_TEXT_MAX];
    bool failed;
    if (volume_read_progress(v, text, &failed))
        return;
    if (failed)
        memcpy(health_add(h, CSI__V1__VOLUME_HEALTH_ERROR_TYPE__INACCESSIBLE, "HydrationFailed")->message, text,
               sizeof text);
    else
        memcpy(h->progress, text, sizeof text);
}

static void add_export(const struct volume *v, struct health *h)
{
    struct err err;
    struct verdict verdict;
    if (!v->spec->export.uri.text)
        return;
    verdict_init(&verdict);
    if (verdict_read(v->dir, &verdict, &err) < 0)
        snprintf(health_add(h, CSI__V1__VOLUME_HEALTH_ERROR_TYPE__DEGRADED, "ExportUnknown")->message, HEALTH_TEXT_MAX,
                 "%.*s", HEALTH_TEXT_MAX - 1, err.text);
    else if (verdict.state == VERDICT_FAILED)
        snprintf(health_add(h, CSI__V1__VOLUME_HEALTH_ERROR_TYPE__DEGRADED, "ExportFailed")->message, HEALTH_TEXT_MAX,
                 "%" PRIu64 " files are not exported, first %.120s: %.160s", verdict_missing_files(&verdict),
                 verdict.failed_count ? verdict.failed[0].path : "?",
                 verdict.failed_count ? verdict.failed[0].err.text : "?");
    verdict_done(&verdict);
}

static void add_space(const struct volume *v, struct health *h)
{
    struct volume_usage u;
    char left[BYTES_TEXT_MAX], total[BYTES_TEXT_MAX];
    struct err err;
    int r = volume_usage(v, &u, &err);
    if (r == -ERR_IO)
        snprintf(health_add(h, CSI__V1__VOLUME_HEALTH_ERROR_TYPE__INACCESSIBLE, "Unreadable")->message, HEALTH_TEXT_MAX,
                 "%.*s", HEALTH_TEXT_MAX - 1, err.text);
    else if (r == 0 && volume_usage_is_full(&u))
        snprintf(health_add(h, CSI__V1__VOLUME_HEALTH_ERROR_TYPE__DEGRADED, "VolumeFull")->message, HEALTH_TEXT_MAX,
                 "%s of %s are left", bytes_text(u.available_bytes, left), bytes_text(u.total_bytes, total));
}

void volume_health(const struct volume *v, struct health *ret)
{
    memset(ret, 0, sizeof *ret);
    add_hydration(v, ret);
    add_export(v, ret);
    add_space(v, ret);
}
