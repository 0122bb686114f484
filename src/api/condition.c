/* SPDX-License-Identifier: Apache-2.0 */
#include "api/condition.h"
#include "fields.h"
#include "util/clock.h"
#include <assert.h>
#include <stdio.h>

/* One condition as it is in JSON; `status` counts from 1 there. */
struct row {
    struct api_condition c;
    unsigned status;
};

static const struct api_field fields[] = {
    {"type", API_TEXT, offsetof(struct row, c.type)},
    {"status", API_CHOICE, offsetof(struct row, status), .choices = "Unknown True False"},
    {"reason", API_TEXT, offsetof(struct row, c.reason)},
    {"message", API_TEXT, offsetof(struct row, c.message)},
    {"lastTransitionTime", API_TIME, offsetof(struct row, c.since_ns)},
    {"observedGeneration", API_NUMBER, offsetof(struct row, c.observed_generation)},
};

static void condition_done(struct api_condition *c)
{
    free(c->type);
    free(c->reason);
    free(c->message);
    *c = (struct api_condition){0};
}

void api_conditions_done(struct api_conditions *c)
{
    while (c->count > 0)
        condition_done(&c->items[--c->count]);
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */

static struct api_condition *find(const struct api_conditions *c, const char *type)
{
    for (size_t i = 0; i < c->count; i++)
        if (strcmp(c->items[i].type, type) == 0)
            return (struct api_condition *)&c->items[i];
    return NULL;
}

const struct api_condition *api_condition_find(const struct api_conditions *c, const char *type)
{
    return find(c, type);
}

bool api_condition_is(const struct api_conditions *c, const char *type, enum api_truth status)
{
    const struct api_condition *one = find(c, type);
    return one && one->status == status;
}

bool api_condition_says(const struct api_conditions *c, const char *type, enum api_truth status, const char *reason)
{
    const struct api_condition *one = find(c, type);
    return one && one->status == status && one->reason && strcmp(one->reason, reason) == 0;
}

/* ---- setting ----------------------------------------------------------------------------------------------------- */

static bool replace(char **text, const char *with)
{
    if (*text && strcmp(*text, with) == 0)
        return false;
    free(*text);
    *text = str_dup(str_of(with));
    return true;
}

static struct api_condition *find_or_add(struct api_conditions *c, const char *type)
{
    struct api_condition *one = find(c, type);
    if (one)
        return one;
    assert(c->count < API_CONDITIONS_MAX);
    one = &c->items[c->count++];
    one->type = str_dup(str_of(type));
    return one;
}

bool api_condition_set(struct api_conditions *c, const char *type, enum api_truth status, const char *reason,
                       uint64_t generation, int64_t now_ns, const char *fmt, ...)
{
    char message[API_MESSAGE_MAX + 1];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    struct api_condition *one = find_or_add(c, type);
    bool changed = one->since_ns == 0 || one->status != status;
    if (changed)
        one->since_ns = now_ns;
    one->status = status;
    changed |= replace(&one->reason, reason);
    changed |= replace(&one->message, message);
    one->observed_generation = generation;
    return changed;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

int api_conditions_read(const json *j, struct api_conditions *ret, struct err *err)
{
    struct api_conditions read = {0};
    int r = 0;
    for (size_t i = 0; i < json_count(j) && read.count < API_CONDITIONS_MAX && r == 0; i++) {
        struct row row = {0};
        r = api_fields_read(json_item(j, i), fields, countof(fields), &row, err);
        if (r == 0 && (!row.c.type || !row.status))
            r = err_set(err, ERR_INVALID, "condition %zu has no type or no status", i);
        row.c.status = row.status ? (enum api_truth)(row.status - 1) : API_UNKNOWN;
        if (r == 0)
            read.items[read.count++] = row.c;
        else
            condition_done(&row.c);
    }
    if (r < 0)
        api_conditions_done(&read);
    else
        *ret = read;
    return r;
}

json *api_conditions_json(const struct api_conditions *c)
{
    json *array = json_new_array();
    for (size_t i = 0; i < c->count; i++) {
        struct row row = {.c = c->items[i], .status = (unsigned)c->items[i].status + 1};
        json *j = json_new_object();
        api_fields_write(j, fields, countof(fields), &row);
        if (!row.c.message)
            json_set_str(j, "message", STR(""));
        json_append(array, j);
    }
    return array;
}
