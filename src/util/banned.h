/* SPDX-License-Identifier: Apache-2.0 */
/* banned.h - makes the use of some functions a compile error, as git's banned.h does. CMakeLists.txt includes it before
 * every file. The system's headers come first, so that their declarations still compile. */
#pragma once

/* Assertions stay in every build type: a programming error ends the process before it uses wrong data. */
#undef NDEBUG

#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BANNED(f) f##_is_banned_see_banned_h

/* No bound, or one that is often wrong. Use struct sbuf, or snprintf and memcpy. */
#undef strcpy
#define strcpy(...) BANNED(strcpy)
#undef strcat
#define strcat(...) BANNED(strcat)
#undef strncpy
#define strncpy(...) BANNED(strncpy)
#undef strncat
#define strncat(...) BANNED(strncat)
#undef sprintf
#define sprintf(...) BANNED(sprintf)
#undef vsprintf
#define vsprintf(...) BANNED(vsprintf)
#undef gets
#define gets(...) BANNED(gets)

/* They read "12x" as 12, and "" as 0. Use str_to_u64() and similar functions. */
#undef atoi
#define atoi(...) BANNED(atoi)
#undef atol
#define atol(...) BANNED(atol)
#undef atoll
#define atoll(...) BANNED(atoll)
#undef atof
#define atof(...) BANNED(atof)

/* One static buffer for all threads. Use gmtime_r, time_text, strerror_r, err_sys, str_split, clock_random. */
#undef gmtime
#define gmtime(...) BANNED(gmtime)
#undef localtime
#define localtime(...) BANNED(localtime)
#undef ctime
#define ctime(...) BANNED(ctime)
#undef asctime
#define asctime(...) BANNED(asctime)
#undef strerror
#define strerror(...) BANNED(strerror)
#undef strtok
#define strtok(...) BANNED(strtok)
#undef rand
#define rand(...) BANNED(rand)

/* They start a shell. Use posix_spawn with an argument list. */
#undef system
#define system(...) BANNED(system)
#undef popen
#define popen(...) BANNED(popen)

/* Another process may create the name first. Use mkstemp or file_nameless(). */
#undef mktemp
#define mktemp(...) BANNED(mktemp)
#undef tmpnam
#define tmpnam(...) BANNED(tmpnam)
#undef tempnam
#define tempnam(...) BANNED(tempnam)

/* The child has no other threads, and may call only async-signal-safe functions before exec. Use posix_spawn. */
#undef vfork
#define vfork(...) BANNED(vfork)
