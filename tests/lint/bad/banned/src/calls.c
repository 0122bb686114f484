/* SPDX-License-Identifier: Apache-2.0 */
/* Every function of banned.h, each of which the compiler must refuse. */
void f(void);
void f(void)
{
    strcpy();
    strcat();
    strncpy();
    strncat();
    sprintf();
    vsprintf();
    gets();
    atoi();
    atol();
    atoll();
    atof();
    gmtime();
    localtime();
    ctime();
    asctime();
    strerror();
    strtok();
    rand();
    system();
    popen();
    mktemp();
    tmpnam();
    tempnam();
    vfork();
}
