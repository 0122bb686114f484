/* SPDX-License-Identifier: Apache-2.0 */
#include "yaml_tree.h"
#include <yaml.h>

enum { TEXT_MAX = 1 << 20, DEPTH_MAX = 32, NODES_MAX = 10000 };

struct yaml_reader {
    yaml_document_t *document;
    const char *what;
    size_t nodes, visits; /* an alias may visit a node again: more visits than nodes are refused */
};

static int refuse(const struct yaml_reader *r, const yaml_node_t *n, const char *why, struct err *err)
{
    return err_set(err, ERR_INVALID, "%s: line %zu: %s", r->what, n->start_mark.line + 1, why);
}

static struct str scalar_text(const yaml_node_t *n)
{
    return (struct str){(const char *)n->data.scalar.value, n->data.scalar.length};
}

/* NULL stands for null. */
static json *scalar_value(const yaml_node_t *n)
{
    struct str s = scalar_text(n);
    bool plain = n->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (plain && (str_eq(s, STR("true")) || str_eq(s, STR("false"))))
        return json_new_bool(s.ptr[0] == 't');
    if (plain && (!s.len || str_eq(s, STR("null")) || str_eq(s, STR("~"))))
        return NULL;
    return json_new_str(s);
}

static int read_node(struct yaml_reader *r, int id, unsigned depth, json **ret, struct err *err);

static int read_sequence(struct yaml_reader *r, const yaml_node_t *n, unsigned depth, json **ret, struct err *err)
{
    auto_json array = json_new_array();
    for (const yaml_node_item_t *i = n->data.sequence.items.start; i < n->data.sequence.items.top; i++) {
        json *element = NULL;
        int code = read_node(r, *i, depth + 1, &element, err);
        if (code < 0)
            return code;
        if (element)
            json_append(array, element);
    }
    *ret = take(&array);
    return 0;
}

static int read_member(struct yaml_reader *r, const yaml_node_pair_t *p, unsigned depth, json *object, struct err *err)
{
    const yaml_node_t *key = yaml_document_get_node(r->document, p->key);
    auto_json key_value = NULL;
    auto_json value = NULL;
    int code = read_node(r, p->key, depth + 1, &key_value, err);
    if (code < 0)
        return code;
    if (key->type != YAML_SCALAR_NODE || memchr(key->data.scalar.value, '\0', key->data.scalar.length))
        return refuse(r, key, "a key is not a plain word", err);
    auto_mem char *name = str_dup(scalar_text(key));
    if (json_member(object, name))
        return refuse(r, key, "a key occurs twice", err);
    code = read_node(r, p->value, depth + 1, &value, err);
    if (code == 0 && value)
        json_set_member(object, name, take(&value));
    return code;
}

static int read_mapping(struct yaml_reader *r, const yaml_node_t *n, unsigned depth, json **ret, struct err *err)
{
    auto_json object = json_new_object();
    for (const yaml_node_pair_t *p = n->data.mapping.pairs.start; p < n->data.mapping.pairs.top; p++) {
        int code = read_member(r, p, depth, object, err);
        if (code < 0)
            return code;
    }
    *ret = take(&object);
    return 0;
}

/* *ret is NULL for null. */
static int read_node(struct yaml_reader *r, int id, unsigned depth, json **ret, struct err *err)
{
    const yaml_node_t *n = yaml_document_get_node(r->document, id);
    if (++r->visits > r->nodes)
        return refuse(r, n, "aliases are not supported", err);
    if (depth > DEPTH_MAX || r->nodes > NODES_MAX)
        return refuse(r, n, "too deep or too large for a configuration", err);
    if (n->type == YAML_SEQUENCE_NODE)
        return read_sequence(r, n, depth, ret, err);
    if (n->type == YAML_MAPPING_NODE)
        return read_mapping(r, n, depth, ret, err);
    if (!str_is_utf8(scalar_text(n)))
        return refuse(r, n, "text is not UTF-8", err);
    *ret = scalar_value(n);
    return 0;
}

static int load(yaml_parser_t *p, const char *what, yaml_document_t *ret, struct err *err)
{
    if (yaml_parser_load(p, ret))
        return 0;
    return err_set(err, ERR_INVALID, "%s is not YAML: line %zu: %s", what, p->problem_mark.line + 1,
                   p->problem ? p->problem : "out of memory");
}

static int read_document(yaml_parser_t *p, const char *what, json **ret, struct err *err)
{
    yaml_document_t document __attribute__((cleanup(yaml_document_delete))) = {0}, next = {0};
    auto_json tree = NULL;
    int code = load(p, what, &document, err);
    if (code < 0)
        return code;
    struct yaml_reader r = {
        .document = &document, .what = what, .nodes = (size_t)(document.nodes.top - document.nodes.start)};
    if (r.nodes > 0 && (code = read_node(&r, 1, 0, &tree, err)) < 0)
        return code;
    if (!tree)
        return err_set(err, ERR_INVALID, "%s: the document is empty", what);
    code = load(p, what, &next, err);
    if (code < 0)
        return code;
    bool has_next = yaml_document_get_root_node(&next) != NULL;
    yaml_document_delete(&next);
    if (has_next)
        return err_set(err, ERR_INVALID, "%s has more than one document", what);
    *ret = take(&tree);
    return 0;
}

int yaml_parse(struct str text, const char *what, json **ret, struct err *err)
{
    yaml_parser_t parser;
    if (text.len > TEXT_MAX)
        return err_set(err, ERR_INVALID, "%s is longer than %d bytes", what, TEXT_MAX);
    if (!yaml_parser_initialize(&parser))
        return err_set(err, ERR_NO_SPACE, "out of memory while reading %s", what);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text.ptr, text.len);
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    int code = read_document(&parser, what, ret, err);
    yaml_parser_delete(&parser);
    return code;
}
