/* SPDX-License-Identifier: Apache-2.0 */
/* seal.h - protects credentials in memory. The process leaves no core dump. Other processes of the same user can
 * neither trace it nor read /proc/PID/mem. An administrator of the machine (CAP_SYS_PTRACE) still can. home: main,
 * before any thread and before it reads credentials, arguments and environment included.
 *
 * The files of /proc/PID then belong to root, so perf and a debugger need root. /proc/self still works. Programs that
 * the process starts are not sealed, but leave no core file either: they inherit its environment. */
#pragma once

void seal_process(void);
