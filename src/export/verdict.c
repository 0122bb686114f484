/* SPDX-License-Identifier: Apache-2.0 */
#include "verdict.h"
#include "util/macro.h"
#include <stdlib.h>

static const char *const state_names[] = {"none", "running", "done", "failed"};
static const char *const purpose_names[] = {"manual", "unpublish", "release"};

const char *verdict_state_name(enum verdict_state s)
{
    return state_names[s];
}

const char *verdict_purpose_name(enum verdict_purpose p)
{
    return purpose_names[p];
}

int verdict_purpose_parse(struct str s, enum verdict_purpose *ret, struct err *err)
{
    for (size_t i = 0; i < countof(purpose_names); i++)
        if (str_eq(s, str_of(purpose_names[i]))) {
            *ret = (enum verdict_purpose)i;
            return 0;
        }
    return err_set(err, ERR_INVALID, "'%.*s' is not manual, unpublish or release", STR_FMT(s));
}

void verdict_init(struct verdict *v)
{
    *v = (struct verdict){.state = VERDICT_NONE};
}

void verdict_done(struct verdict *v)
{
    free(v->failed);
    verdict_init(v);
}
