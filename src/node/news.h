/* SPDX-License-Identifier: Apache-2.0 */
/* news.h - what of a volume's status is worth an event: what its owner should hear of without looking. Pure. */
#pragma once

#include "api/volume.h"

struct news {
    const char *reason;  /* static */
    const char *message; /* a view of `now`'s, or static */
};

enum { NEWS_MAX = 6 };

/* All of it is bad. How much there is. */
size_t news_of(const struct api_volume *before, const struct api_volume *now, struct news ret[NEWS_MAX]);
