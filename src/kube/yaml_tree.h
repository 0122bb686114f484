/* SPDX-License-Identifier: Apache-2.0 */
/* yaml_tree.h - reads a YAML configuration file as a JSON tree. home: any; pure. */
#pragma once

#include "util/json.h"

/* Plain `true`, `false`, `null`, `~` and nothing have their usual values. Every other scalar is a string: a token of
 * digits stays a token. ERR_INVALID, with the line: aliases, duplicate keys, keys that are not scalars, several
 * documents, and more than 32 levels, 10,000 nodes or 1 MiB. */
must_check int yaml_parse(struct str text, const char *what, json **ret, struct err *err);
