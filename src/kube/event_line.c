/* SPDX-License-Identifier: Apache-2.0 */
#include "event_line.h"
#include "kube/informer.h"
#include <stdio.h>

int event_line_parse(struct str line, enum watch_type *ret_type, json **ret_object, struct err *err)
{
    static const char *const types[] = {[WATCH_ADDED] = "ADDED",
                                        [WATCH_MODIFIED] = "MODIFIED",
                                        [WATCH_DELETED] = "DELETED",
                                        [WATCH_BOOKMARK] = "BOOKMARK",
                                        [WATCH_ERROR] = "ERROR"};
    auto_json j = NULL;
    struct err why;
    if (json_parse(line, "a line of the watch", &j, &why) < 0)
        return err_set(err, ERR_CORRUPT, "%s", why.text);
    struct str type = json_member_str(j, "type");
    auto_json object = json_take_at(j, "object");
    for (size_t i = 0; i < countof(types); i++)
        if (str_eq(type, str_of(types[i])) && json_count(object) > 0) {
            *ret_type = (enum watch_type)i;
            *ret_object = take(&object);
            return 0;
        }
    return err_set(err, ERR_CORRUPT, "a line of the watch is no event");
}

int object_key(const json *object, char *buf, struct str *ret, struct err *err)
{
    const json *metadata = json_at(object, "metadata");
    struct str name = json_member_str(metadata, "name"), ns = json_member_str(metadata, "namespace");
    if (!name.len || !json_member_str(metadata, "resourceVersion").len || name.len + ns.len + 2 > KUBE_KEY_MAX)
        return err_set(err, ERR_CORRUPT, "an object has no name or no version");
    int n = snprintf(buf, KUBE_KEY_MAX, "%.*s%s%.*s", STR_FMT(ns), ns.len ? "/" : "", STR_FMT(name));
    *ret = (struct str){buf, (size_t)n};
    return 0;
}
