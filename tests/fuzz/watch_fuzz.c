/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a watch, cut where the first byte says: lines, events, keys, the Status of an error. */
#include "answer.h"
#include "fuzz.h"
#include "kube/informer.h"
#include "watch_line.h"
#include <assert.h>

static int on_line(void *ctx, struct str line, struct err *err)
{
    enum watch_type type;
    auto_json object = NULL;
    char buf[KUBE_KEY_MAX];
    struct str key;
    struct answer_outcome out;
    (void)ctx;
    assert(line.len > 0 && !memchr(line.ptr, '\n', line.len));
    int r = watch_line_parse(line, &type, &object, err);
    if (r < 0)
        return r;
    if (type == WATCH_ERROR)
        return answer_of_status("watch", object, &out, err);
    r = object_key(object, buf, &key, err);
    assert(r < 0 || (key.len > 0 && key.len < KUBE_KEY_MAX));
    return r;
}

/* The same as the answer to a plain request. */
static void as_answer(struct str body)
{
    struct answer a = {.what = "get", .http = 200, .type = STR("application/json"), .retry = body, .body = body};
    struct answer_outcome out;
    struct err err;
    json *object = NULL;
    if (answer_read(&a, &object, &out, &err) == 0)
        assert(object);
    json_free(object);
    a.http = body.len ? 100 + 4 * (unsigned char)body.ptr[0] : 404;
    object = NULL;
    if (answer_read(&a, &object, &out, &err) == 0)
        json_free(object);
    else
        assert(err.text[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct line_splitter lines;
    struct err err;
    if (size == 0)
        return 0;
    struct str all = {(const char *)data + 1, size - 1};
    size_t piece = data[0] ? data[0] : size;
    line_splitter_init(&lines);
    for (struct str rest = all; rest.len; rest = str_from(rest, piece))
        if (line_splitter_feed(&lines, str_sub(rest, 0, piece), on_line, NULL, &err) < 0) {
            assert(err.text[0]);
            break;
        }
    line_splitter_done(&lines);
    as_answer(all);
    return 0;
}
