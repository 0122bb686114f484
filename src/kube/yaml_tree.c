/* SPDX-License-Identifier: Apache-2.0 */
#include "yaml_tree.h"
#include <yaml.h>

enum { TEXT_MAX = 1 << 20, DEPTH_MAX = 32, NODES_MAX = 10000 };

struct reader {
    yaml_parser_t parser;
    const char *what;
    unsigned nodes;
};

static int refuse(const struct reader *r, const char *why, struct err *err)
{
    return err_set(err, ERR_INVALID, "%s: line %zu: %s", r->what, r->parser.mark.line + 1, why);
}

static int next_event(struct reader *r, yaml_event_t *ret, struct err *err)
{
    if (!yaml_parser_parse(&r->parser, ret))
        return err_set(err, ERR_INVALID, "%s is not YAML: line %zu: %s", r->what, r->parser.problem_mark.line + 1,
                       r->parser.problem ? r->parser.problem : "out of memory");
    return 0;
}

static struct str scalar_text(const yaml_event_t *e)
{
    return (struct str){(const char *)e->data.scalar.value, e->data.scalar.length};
}

/* A scalar that means itself: of `parent`'s member `name`, or behind the array's elements. */
static json *scalar_value(const yaml_event_t *e)
{
    struct str s = scalar_text(e);
    auto_json holder = json_new_object();
    bool plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (plain && (str_eq(s, STR("true")) || str_eq(s, STR("false"))))
        json_set_bool(holder, "v", s.ptr[0] == 't');
    else if (!plain || (s.len && !str_eq(s, STR("null")) && !str_eq(s, STR("~"))))
        json_set_str(holder, "v", s);
    return json_take_at(holder, "v"); /* NULL stands for null */
}

static int read_node(struct reader *r, const yaml_event_t *first, unsigned depth, json **ret, struct err *err);

static int read_sequence(struct reader *r, unsigned depth, json **ret, struct err *err)
{
    auto_json array = json_new_array();
    for (;;) {
        yaml_event_t e;
        json *element = NULL;
        int code = next_event(r, &e, err);
        if (code < 0)
            return code;
        bool ended = e.type == YAML_SEQUENCE_END_EVENT;
        if (!ended)
            code = read_node(r, &e, depth + 1, &element, err);
        yaml_event_delete(&e);
        if (code < 0)
            return code;
        if (ended)
            break;
        if (element)
            json_append(array, element);
    }
    *ret = take(&array);
    return 0;
}

static int read_name(struct reader *r, const yaml_event_t *e, const json *object, char **ret, struct err *err)
{
    if (e->type != YAML_SCALAR_EVENT || memchr(e->data.scalar.value, '\0', e->data.scalar.length))
        return refuse(r, "a key is not a plain word", err);
    auto_mem char *name = str_dup(scalar_text(e));
    if (json_member(object, name))
        return refuse(r, "a key stands there twice", err);
    *ret = take(&name);
    return 0;
}

static int read_member(struct reader *r, const yaml_event_t *key, unsigned depth, json *object, struct err *err)
{
    auto_mem char *name = NULL;
    yaml_event_t e;
    json *value = NULL;
    int code = read_name(r, key, object, &name, err);
    if (code == 0)
        code = next_event(r, &e, err);
    if (code < 0)
        return code;
    code = read_node(r, &e, depth + 1, &value, err);
    yaml_event_delete(&e);
    if (code == 0 && value)
        json_set_member(object, name, value);
    return code;
}

static int read_mapping(struct reader *r, unsigned depth, json **ret, struct err *err)
{
    auto_json object = json_new_object();
    for (;;) {
        yaml_event_t e;
        int code = next_event(r, &e, err);
        if (code < 0)
            return code;
        bool ended = e.type == YAML_MAPPING_END_EVENT;
        if (!ended)
            code = read_member(r, &e, depth, object, err);
        yaml_event_delete(&e);
        if (code < 0)
            return code;
        if (ended)
            break;
    }
    *ret = take(&object);
    return 0;
}

/* *ret is NULL for null. */
static int read_node(struct reader *r, const yaml_event_t *first, unsigned depth, json **ret, struct err *err)
{
    if (depth > DEPTH_MAX || ++r->nodes > NODES_MAX)
        return refuse(r, "too deep or too much for a configuration", err);
    switch (first->type) {
    case YAML_SCALAR_EVENT:
        if (!str_is_utf8(scalar_text(first)))
            return refuse(r, "text is not UTF-8", err);
        *ret = scalar_value(first);
        return 0;
    case YAML_SEQUENCE_START_EVENT:
        return read_sequence(r, depth, ret, err);
    case YAML_MAPPING_START_EVENT:
        return read_mapping(r, depth, ret, err);
    default:
        return refuse(r, "an alias or an end that does not belong there", err);
    }
}

/* Stream, document, its node, and nothing after it. */
static int read_document(struct reader *r, json **ret, struct err *err)
{
    static const yaml_event_type_t before[] = {YAML_STREAM_START_EVENT, YAML_DOCUMENT_START_EVENT};
    static const yaml_event_type_t after[] = {YAML_DOCUMENT_END_EVENT, YAML_STREAM_END_EVENT};
    auto_json tree = NULL;
    yaml_event_t e;
    int code = 0;
    for (size_t i = 0; i < countof(before); i++) {
        if ((code = next_event(r, &e, err)) < 0)
            return code;
        yaml_event_type_t type = e.type;
        yaml_event_delete(&e);
        if (type != before[i])
            return refuse(r, "there is no document", err);
    }
    if ((code = next_event(r, &e, err)) < 0)
        return code;
    code = read_node(r, &e, 0, &tree, err);
    yaml_event_delete(&e);
    for (size_t i = 0; i < countof(after) && code == 0; i++) {
        if ((code = next_event(r, &e, err)) < 0)
            return code;
        yaml_event_type_t type = e.type;
        yaml_event_delete(&e);
        if (type != after[i])
            return refuse(r, "there is more than one document", err);
    }
    if (code < 0)
        return code;
    if (!tree)
        return refuse(r, "the document is empty", err);
    *ret = take(&tree);
    return 0;
}

int yaml_parse(struct str text, const char *what, json **ret, struct err *err)
{
    struct reader r = {.what = what};
    if (text.len > TEXT_MAX)
        return err_set(err, ERR_INVALID, "%s is longer than %d bytes", what, TEXT_MAX);
    if (!yaml_parser_initialize(&r.parser))
        return err_set(err, ERR_NO_SPACE, "no memory to read %s", what);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text.ptr, text.len);
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    int code = read_document(&r, ret, err);
    yaml_parser_delete(&r.parser);
    return code;
}
