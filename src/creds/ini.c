/* SPDX-License-Identifier: Apache-2.0 */
#include "ini.h"

static bool is_header(struct str line, struct str *ret)
{
    if (line.len < 2 || line.ptr[0] != '[')
        return false;
    ssize_t end = str_find(line, ']');
    if (end < 0)
        return false;
    *ret = str_trim(str_sub(line, 1, (size_t)end - 1));
    return true;
}

/* "NAME = VALUE", or "NAME: VALUE" as Python has it. */
static ssize_t delimiter(struct str line)
{
    ssize_t equals = str_find(line, '='), colon = str_find(line, ':');
    return equals < 0 || (colon >= 0 && colon < equals) ? colon : equals;
}

bool ini_is_valid(struct str text, size_t *ret_line)
{
    struct str line, header;
    bool has_name = false;
    for (*ret_line = 1; str_split(&text, '\n', &line); ++*ret_line) {
        struct str words = str_trim(line);
        if (words.len == 0 || words.ptr[0] == '#' || words.ptr[0] == ';')
            continue;
        if (is_header(line, &header)) {
            has_name = false;
            continue;
        }
        /* An indented line continues a value. Python also reads one that has no value above it; we would skip a key. */
        bool is_nested = line.ptr[0] == ' ' || line.ptr[0] == '\t';
        if (is_nested ? !has_name : delimiter(line) < 1)
            return false;
        has_name = true;
    }
    return true;
}

bool ini_value(struct str text, struct str section, struct str name, struct str *ret)
{
    struct str line, header;
    bool inside = false;
    while (str_split(&text, '\n', &line)) {
        if (line.len == 0 || line.ptr[0] == '#' || line.ptr[0] == ';' || line.ptr[0] == ' ' || line.ptr[0] == '\t')
            continue;
        if (is_header(line, &header)) {
            inside = str_eq(header, section);
            continue;
        }
        ssize_t equals = delimiter(line);
        if (!inside || equals < 0 || !str_eq(str_trim(str_sub(line, 0, (size_t)equals)), name))
            continue;
        *ret = str_trim(str_from(line, (size_t)equals + 1));
        return true;
    }
    return false;
}
