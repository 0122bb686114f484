/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - runs the tests of one file of a room: `unit-util str`. In that program the main() of str_test.c is
 * unit_str(). */
#include <stdio.h>
#include <string.h>

#define UNIT(file) int unit_##file(void);
#include "tests.inc"
#undef UNIT

#define UNIT(file) {#file, unit_##file},
static const struct {
    const char *file;
    int (*run)(void);
} tests[] = {
#include "tests.inc"
};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && i < sizeof tests / sizeof *tests; i++)
        if (strcmp(argv[1], tests[i].file) == 0)
            return tests[i].run();
    fprintf(stderr, "usage: %s FILE, one of", argv[0]);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        fprintf(stderr, " %s", tests[i].file);
    fprintf(stderr, "\n");
    return 2;
}
