/* SPDX-License-Identifier: Apache-2.0 */
/* former_name.h - has another name than its file, and names tests/unit/io/absent_test.c and gone.h. */
#pragma once
