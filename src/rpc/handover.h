/* SPDX-License-Identifier: Apache-2.0 */
/* handover.h - what goes into gRPC and comes back by its completion queue changes threads on the way. The thread
 * sanitizer does not see by what gRPC orders the two, so it is told: nothing in any other build. */
#pragma once

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define handed_over(tag) __tsan_release(tag)
#define taken_back(tag) __tsan_acquire(tag)
#else
#define handed_over(tag) ((void)(tag))
#define taken_back(tag) ((void)(tag))
#endif
