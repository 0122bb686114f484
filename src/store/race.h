/* SPDX-License-Identifier: Apache-2.0 */
/* race.h - a GET that does not answer is asked for a second time: the first good head wins, the other is called off
 * before a byte of its body was given to anybody, and the caller sees one job.
 * home: the job's loop.
 *
 * The caller holds the first attempt whichever wins. Both are kept until both are over: after on_done no request of
 * the job is under way. An answer that stands still in its middle cannot be joined with another one's bytes: it is
 * given up, within the same bounds, and the caller starts over. */
#pragma once

#include "backend.h"

/* One of the two is over. NULL: the other one is not; else the one whose reply is the job's. */
struct store_job *race_settle(struct store_job *j);
