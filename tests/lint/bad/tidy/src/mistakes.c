/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

int f(const char *text);
int f(const char *text)
{
    char *copy = malloc(strlen(text)); /* one byte short */
    strcpy(copy, text);
    if (copy[0] = 'x') /* an assignment */
        return 1;
    return *(int *)NULL; /* nothing there, and the copy is lost */
}
