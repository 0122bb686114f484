/* SPDX-License-Identifier: Apache-2.0 */
/* banned.h - functions that do not compile here; CMakeLists.txt puts it before every file. After git's banned.h.
 * The system's headers come first, so that what they declare is not what we forbid. */
#pragma once

/* Assertions stay in every build type: a mistake of ours ends the process, it does not go on with wrong data. */
#undef NDEBUG

#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BANNED(f) f##_is_banned_see_banned_h

/* No bound, or one that everybody gets wrong: struct sbuf, or snprintf and memcpy. */
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

/* "12x" is 12, and so is nothing: str_to_u64 and its like. */
#undef atoi
#define atoi(...) BANNED(atoi)
#undef atol
#define atol(...) BANNED(atol)
#undef atoll
#define atoll(...) BANNED(atoll)
#undef atof
#define atof(...) BANNED(atof)

/* One static buffer for all threads: gmtime_r, time_text, strerror_r, err_sys, str_split, clock_random. */
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

/* A shell between us and what we run: posix_spawn with an argument list. */
#undef system
#define system(...) BANNED(system)
#undef popen
#define popen(...) BANNED(popen)

/* Names that somebody else may take before us: mkstemp, file_nameless(). */
#undef mktemp
#define mktemp(...) BANNED(mktemp)
#undef tmpnam
#define tmpnam(...) BANNED(tmpnam)
#undef tempnam
#define tempnam(...) BANNED(tempnam)

/* Between it and exec only what POSIX allows in a signal handler may run, and no thread of ours is there. */
#undef vfork
#define vfork(...) BANNED(vfork)
