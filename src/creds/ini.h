/* SPDX-License-Identifier: Apache-2.0 */
/* ini.h - the vendor's file of profiles: sections in brackets, `name = value` below them. Pure. */
#pragma once

#include "util/str.h"

/* Finds the trimmed value of `name` in `[section]`, a view into the text. False: not set. Lines that begin with '#' or
 * ';' are comments; indented lines are continuation lines and are ignored. */
bool ini_value(struct str text, struct str section, struct str name, struct str *ret);

/* Is each line a section, a value, its continuation, a comment or empty? False: *ret_line is the first that is not,
 * from 1. */
bool ini_is_valid(struct str text, size_t *ret_line);
