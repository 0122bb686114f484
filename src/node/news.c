/* SPDX-License-Identifier: Apache-2.0 */
#include "news.h"
#include <string.h>

/* What the condition says, if it says it for this reason now and did not before. */
static const char *became(const struct api_volume *before, const struct api_volume *now, const char *type,
                          const char *reason)
{
    if (!api_condition_says(&now->status.conditions, type, API_FALSE, reason) ||
        api_condition_says(&before->status.conditions, type, API_FALSE, reason))
        return NULL;
    return api_condition_find(&now->status.conditions, type)->message;
}

static bool was_made_anew(const struct api_volume *before, const struct api_volume *now)
{
    const char *was = before->status.pool_uuid, *is = now->status.pool_uuid;
    return was && is && strcmp(was, is) != 0 && before->status.phase != API_PHASE_LOST;
}

size_t news_of(const struct api_volume *before, const struct api_volume *now, struct news ret[NEWS_MAX])
{
    const struct {
        const char *reason, *message;
    } all[NEWS_MAX] = {
        {"VolumeLost", was_made_anew(before, now)
                           ? "its disk was replaced or wiped: it is made anew, as onDataLoss says; what was not "
                             "exported is lost"
                           : became(before, now, API_HEALTHY, API_REASON_VOLUME_LOST)},
        {"PoolAbsent", became(before, now, API_HEALTHY, API_REASON_POOL_ABSENT)},
        {"MountsLost", became(before, now, API_MOUNTED, API_REASON_MOUNTS_LOST)},
        {"VolumeFull", became(before, now, API_HEALTHY, API_REASON_VOLUME_FULL)},
        {"ReleaseHeld", became(before, now, API_EXPORTED, API_REASON_POOL_ABSENT)},
        {"VolumeUnreadable", became(before, now, API_HEALTHY, API_REASON_UNREADABLE)},
    };
    size_t count = 0;
    for (size_t i = 0; i < NEWS_MAX; i++)
        if (all[i].message)
            ret[count++] = (struct news){.reason = all[i].reason, .message = all[i].message};
    return count;
}
