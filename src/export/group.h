/* SPDX-License-Identifier: Apache-2.0 */
/* group.h - which folder is the checkpoint of a file. Pure; pick.h tells the rule. */
#pragma once

#include "pick.h"

/* Is `name` (one segment) a number, or a word of training and a number? */
bool group_is_step_name(struct str name);

/* Finds the checkpoints of files sorted by path, and sets each file's `group`. The caller frees *ret_groups. */
void group_files(struct pick_file *files, size_t count, const struct pick_rules *rules, struct pick_group **ret_groups,
                 size_t *ret_count);
