/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/release_state.h"
#include <stddef.h>

/* Does the volume have bytes that must be in the bucket first? */
static bool owes_export(const struct release_facts *f)
{
    return f->has_policy && f->writes > 0 && !f->may_discard;
}

/* A verdict is valid for the content of the sealed volume when its export started. */
static bool verdict_counts(const struct release_facts *f)
{
    return f->verdict != RELEASE_UNTRIED && f->verdict_writes == f->writes;
}

static bool is_paid(const struct release_facts *f)
{
    if (!verdict_counts(f))
        return false;
    return f->verdict == RELEASE_CONFIRMED || (f->verdict == RELEASE_FAILED && f->discards_failed);
}

static enum release_step step_of_present(const struct release_facts *f)
{
    /* The record of an unreadable volume is unknown: only an administrator may discard it. */
    bool is_readable = f->place == RELEASE_HERE;
    if (is_readable && f->in_cluster && f->stage == RELEASE_OPEN)
        return RELEASE_CLOSE;
    if (f->in_use)
        return RELEASE_IN_USE;
    bool owes = is_readable && owes_export(f);
    if (owes && f->stage != RELEASE_SEALED)
        return RELEASE_SEAL;
    if (f->at_work)
        return RELEASE_AT_WORK;
    if (owes && !is_paid(f))
        return verdict_counts(f) ? RELEASE_EXPORT_FAILED : RELEASE_EXPORT_DUE;
    return f->is_committed ? RELEASE_TRASH : RELEASE_COMMIT;
}

enum release_step release_next_step(const struct release_facts *f)
{
    if (f->is_withdrawn)
        return f->place == RELEASE_HERE && f->stage != RELEASE_OPEN ? RELEASE_REOPEN : RELEASE_WITHDRAWN;
    if (f->place == RELEASE_UNREADABLE && !f->may_discard)
        return RELEASE_DAMAGED;
    if (f->place == RELEASE_ABSENT && owes_export(f))
        return RELEASE_HELD;
    if (f->place == RELEASE_MISSING || f->place == RELEASE_ABSENT)
        return f->is_committed ? RELEASE_GONE : RELEASE_COMMIT;
    return step_of_present(f);
}

enum release_admission release_admit(enum release_stage stage, bool in_cluster, bool export_for_release_runs)
{
    if (stage == RELEASE_OPEN)
        return RELEASE_ADMIT;
    if (in_cluster)
        return RELEASE_REFUSE;
    return export_for_release_runs ? RELEASE_REFUSE_NOW : RELEASE_ADMIT_BY_WITHDRAWING;
}

uint64_t release_verdict_writes(enum release_stage stage, uint64_t writes)
{
    return stage == RELEASE_SEALED ? writes : 0;
}

bool release_may_withdraw(bool is_requested, bool is_committed)
{
    return is_requested && !is_committed;
}
