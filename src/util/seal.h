/* SPDX-License-Identifier: Apache-2.0 */
/* seal.h - a process that may come to hold a credential shows its memory to nobody: it leaves no core dump, and no
 * other process of its user can trace it or read /proc/PID/mem, not even as the same user. An administrator of the
 * machine (CAP_SYS_PTRACE) still can. home: main, before anything is read that may be a credential, arguments and
 * environment included, and before any thread.
 *
 * What follows from it: the files of /proc/PID belong to root, so that perf and a debugger need root as well; of its
 * own (/proc/self) the process keeps all. Programs that it starts are not sealed, but leave no core file either: they
 * inherit its environment. */
#pragma once

void seal_process(void);
