/* SPDX-License-Identifier: Apache-2.0 */
struct put_request {
    int id;
};

static int first(const struct put_request *j)
{
    return j->id;
}

struct put_request {
    int state;
};
