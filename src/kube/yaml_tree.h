/* SPDX-License-Identifier: Apache-2.0 */
/* yaml_tree.h - a YAML document as a JSON tree, as far as configuration files go. home: any; pure. */
#pragma once

#include "util/json.h"

/* One document. Plain `true`, `false`, `null`, `~` and nothing are what they look like, every other scalar is a string
 * (so that a token of digits stays a token). Aliases, doubled keys, keys that are no scalars, more than 32 levels,
 * 10,000 nodes or 1 MiB are ERR_INVALID; the sentence has the line. */
must_check int yaml_parse(struct str text, const char *what, json **ret, struct err *err);
