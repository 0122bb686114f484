/* SPDX-License-Identifier: Apache-2.0 */
/* etag.h - compares ETags in any notation. home: any; pure. */
#pragma once

#include "store/store.h"

/* W/"...": a weak ETag, whose objects may differ in bytes. It never satisfies If-Match. */
bool etag_is_weak(struct str etag);

struct str etag_unquoted(struct str etag); /* a view */
struct str etag_bare(struct str etag);     /* without W/ and quotes; a view */

/* Compares ETags without W/ and quotes: proxies weaken ETags, and some stores quote them in replies but not in
 * listings. Checksums verify the bytes. */
bool etag_is_same(struct str a, struct str b);
