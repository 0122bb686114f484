/* SPDX-License-Identifier: Apache-2.0 */
/* ini.h - the vendor's file of profiles: sections in brackets, `name = value` below them. Pure. */
#pragma once

#include "util/str.h"

/* The value of `name` in `[section]`, trimmed; a view into the text. False if there is none. Lines that begin with '#'
 * or ';' are comments; indented lines belong to the value above and are left out. */
bool ini_value(struct str text, struct str section, struct str name, struct str *ret);
