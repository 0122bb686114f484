/* SPDX-License-Identifier: Apache-2.0 */
#include "api/condition.h"
#include "api/source.h"
#include "api/volume.h"
#include "util/json_fields.h"
#include <stdio.h>

static const char *const truths[] = {[API_UNKNOWN] = "Unknown", [API_TRUE] = "True", [API_FALSE] = "False"};

#define AT(field) .offset = offsetof(struct api_condition, field)
static const struct json_field fields[] = {
    {"type", JSON_TEXT, AT(type)},
    {"status", JSON_NAME, AT(status), JSON_NAMES(truths)},
    {"reason", JSON_TEXT, AT(reason)},
    {"message", JSON_TEXT, AT(message), .flags = JSON_ALWAYS},
    {"lastTransitionTime", JSON_TIME, AT(since_ns)},
    {"observedGeneration", JSON_U64, AT(observed_generation)},
};

void api_conditions_done(struct api_conditions *c)
{
    while (c->count > 0)
        json_fields_clear(fields, countof(fields), &c->items[--c->count]);
}

/* ---- finding ----------------------------------------------------------------------------------------------------- */

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

static bool is_own(const char *type)
{
    return str_is_any(str_of(type), API_PROVISIONED, API_HYDRATED, API_VERIFIED, API_MOUNTED, API_EXPORTED, API_HEALTHY,
                      API_DELETION_HELD, API_NODE_GONE, API_ACCEPTED, API_IDENTITY_READY, API_REACHABLE, API_LISTED,
                      API_EXPORTABLE, API_READY);
}

/* Cistern has fewer types than API_CONDITIONS_MAX, so there is one of another program. */
static void remove_foreign(struct api_conditions *c)
{
    size_t i = 0;
    while (i + 1 < c->count && is_own(c->items[i].type))
        i++;
    json_fields_clear(fields, countof(fields), &c->items[i]);
    memmove(&c->items[i], &c->items[i + 1], (--c->count - i) * sizeof c->items[0]);
}

static struct api_condition *find_or_add(struct api_conditions *c, const char *type)
{
    struct api_condition *one = find(c, type);
    if (one)
        return one;
    if (c->count == API_CONDITIONS_MAX)
        remove_foreign(c);
    one = &c->items[c->count++];
    *one = (struct api_condition){0};
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
    for (size_t i = 0; i < json_count(j) && i < API_CONDITIONS_MAX && r == 0; i++) {
        const json *item = json_item(j, i);
        struct api_condition *c = &read.items[read.count++];
        r = json_fields_read(item, fields, countof(fields), c, err);
        if (r == 0 && (!c->type || !json_member_str(item, "status").len))
            r = err_set(err, ERR_INVALID, "condition %zu has no type or no status", i);
        if (!c->reason)
            c->reason = str_dup(STR(""));
    }
    if (r < 0)
        api_conditions_done(&read);
    else
        *ret = read;
    return r;
}

json *api_conditions_json(const struct api_conditions *c)
{
    return json_fields_list(fields, countof(fields), c->items, c->count, sizeof c->items[0]);
}
