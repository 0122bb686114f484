/* SPDX-License-Identifier: Apache-2.0 */
#include "s3/document.h"
#include "unit.h"
#include "util/clock.h"

#define HEAD "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"

struct parsed {
    struct object_page page;
    struct s3_document *xml;
    const struct s3_reply *answer;
    struct err err;
};

static int parse(struct parsed *p, struct str text)
{
    object_page_init(&p->page);
    p->xml = s3_document_new(&p->page);
    int r = s3_document_read(p->xml, text, &p->err);
    p->answer = s3_document_reply(p->xml);
    return r;
}

static void done(struct parsed *p)
{
    s3_document_free(p->xml);
    object_page_done(&p->page);
}

static void assert_str(struct str s, const char *want)
{
    if (!str_eq(s, str_of(want)))
        fail_msg("'%.*s' is not '%s'", STR_FMT(s), want);
}

static void a_list_is_read(void **state)
{
    static const char text[] =
        HEAD "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name><Prefix>x%2F</Prefix>"
             "<EncodingType>url</EncodingType><KeyCount>2</KeyCount><IsTruncated>true</IsTruncated>"
             "<NextContinuationToken>a+b=</NextContinuationToken>"
             "<Contents><Key>x/a+b%2Bc%25%C3%BC</Key><LastModified>2026-11-21T09:30:00.250Z</LastModified>"
             "<ETag>&quot;abc&quot;</ETag><Size>18446744073709551615</Size><StorageClass>STANDARD</StorageClass>"
             "<Owner><ID>Key</ID><DisplayName>n</DisplayName></Owner></Contents>"
             "<Contents><Key>x/b</Key><Size>0</Size></Contents>"
             "<CommonPrefixes><Prefix>x/c/</Prefix></CommonPrefixes></ListBucketResult>";
    (void)state;
    struct parsed p;
    assert_int_equal(parse(&p, STR(text)), 0);
    assert_str(p.answer->root, "ListBucketResult");
    assert_true(p.answer->is_truncated);
    assert_str(p.answer->next_token, "a+b=");
    assert_int_equal(p.page.count, 3);
    assert_str(p.page.objects[0].key, "x/a b+c%\xc3\xbc");
    assert_str(p.page.objects[0].etag, "\"abc\"");
    assert_true(p.page.objects[0].size_bytes == UINT64_MAX);
    assert_true(p.page.objects[0].mtime_ns == INT64_C(1795253400250000000));
    assert_str(p.page.objects[1].key, "x/b");
    assert_str(p.page.objects[1].etag, "");
    assert_str(p.page.objects[2].key, "x/c/");
    done(&p);
}

static void only_a_plain_no_ends_a_listing(void **state)
{
    static const struct {
        const char *text;
        bool more;
    } lists[] = {
        {"<IsTruncated>false</IsTruncated><NextContinuationToken>t</NextContinuationToken>", false},
        {"<IsTruncated> False\n</IsTruncated>", false},
        {"<IsTruncated>0</IsTruncated>", false},
        {"", false},
        {"<NextContinuationToken>t</NextContinuationToken>", true},
        {"<IsTruncated/><NextContinuationToken>t</NextContinuationToken>", true},
        {"<IsTruncated>True</IsTruncated>", true},
        {"<IsTruncated>\n true </IsTruncated>", true},
        {"<IsTruncated>1</IsTruncated>", true},
        {"<IsTruncated>yes</IsTruncated>", true},
    };
    (void)state;
    for (size_t i = 0; i < countof(lists); i++) {
        struct parsed p;
        auto_sbuf b;
        sbuf_init(&b, 4096);
        sbuf_addf(&b, "<ListBucketResult>%s</ListBucketResult>", lists[i].text);
        assert_int_equal(parse(&p, sbuf_str(&b)), 0);
        if (p.answer->is_truncated != lists[i].more)
            fail_msg("%s", lists[i].text);
        done(&p);
    }
}

static void an_object_without_a_time_is_listed(void **state)
{
    struct parsed p;
    (void)state;
    assert_int_equal(parse(&p, STR("<ListBucketResult><Contents><Key>a</Key><LastModified>0001-01-01T00:00:00Z"
                                   "</LastModified><Size>5</Size></Contents></ListBucketResult>")),
                     0);
    assert_int_equal(p.page.count, 1);
    assert_true(p.page.objects[0].mtime_ns == 0 && p.page.objects[0].size_bytes == 5);
    done(&p);
}

static void keys_are_decoded_also_when_the_server_says_so_last(void **state)
{
    struct parsed p;
    (void)state;
    assert_int_equal(parse(&p, STR("<ListBucketResult><Contents><Key>a%2Fb</Key><Size>0</Size></Contents>"
                                   "<EncodingType>url</EncodingType></ListBucketResult>")),
                     0);
    assert_str(p.page.objects[0].key, "a/b");
    done(&p);
    assert_int_equal(
        parse(&p, STR("<ListBucketResult><Contents><Key>a%2Fb</Key><Size>0</Size></Contents></ListBucketResult>")), 0);
    assert_str(p.page.objects[0].key, "a%2Fb");
    done(&p);
}

/* A list of one object as `item` has it, between two others. */
static int parse_between(struct parsed *p, const char *item)
{
    auto_sbuf b;
    sbuf_init(&b, 1 << 20);
    sbuf_addf(&b,
              "<ListBucketResult><Contents><Key>a</Key><Size>1</Size></Contents>%s<Contents><Key>z</Key><Size>1</"
              "Size></Contents></ListBucketResult>",
              item);
    return parse(p, sbuf_str(&b));
}

static void an_object_is_read_in_whatever_way_it_is_written(void **state)
{
    static const char *const same[] = {
        "<Contents><Key>k&amp;&lt;&#34;&quot;</Key><Size>7</Size><ETag>&quot;e&quot;</ETag></Contents>",
        "\r\n  <Contents>\n\t<Key>k&amp;&lt;&#34;&quot;</Key> <Size>7</Size> <ETag>&#34;e&#34;</ETag>\n</Contents>\n",
        "<Contents ><Key>k&#x26;&lt;\"\"</Key><Size>\n 7 </Size><ETag>\"e\"</ETag></Contents>",
        "<Contents><Key><![CDATA[k&<\"]]>&quot;</Key><Size>7</Size><ETag>\"e\"</ETag></Contents>",
        "<Contents><!-- </Contents> --><Key a='b'>k&amp;&#60;\"\"</Key><Size>7</Size><ETag>\"e\"</ETag></Contents>",
        "<Contents><Owner><ID>o</ID></Owner><Key>k&amp;&lt;\"\"</Key><Size>7</Size><ETag>\"e\"</ETag></Contents>",
        "<!-- </Contents> "
        "--><Contents><Key>x</Key><Key>k&amp;&lt;\"\"</Key><Size>7</Size><ETag>\"e\"</ETag></Contents>",
        "<s:Contents xmlns:s='u'><s:Key>k&amp;&lt;\"\"</s:Key><Size>7</Size><ETag>\"e\"</ETag></s:Contents>",
    };
    (void)state;
    for (size_t i = 0; i < countof(same); i++) {
        struct parsed p;
        if (parse_between(&p, same[i]) < 0)
            fail_msg("%s: %s", same[i], p.err.text);
        assert_int_equal(p.page.count, 3);
        assert_str(p.page.objects[1].key, "k&<\"\"");
        assert_str(p.page.objects[1].etag, "\"e\"");
        assert_int_equal(p.page.objects[1].size_bytes, 7);
        assert_str(p.page.objects[2].key, "z");
        done(&p);
    }
}

static void reply_that_is_not_xml_is_refused(void **state)
{
    static const char *const bad[] = {
        "<Contents><Key>k</Size></Contents>",
        "<Contents><Size>1</Size><Key>k]]></Key></Contents>",
        "<Contents><Size>1</Size><Key>k</Key></Contents></Contents>",
        "<Contents><Size>1</Size><Key>&undefined;</Key></Contents>",
        "<Contents><Size>1</Size><Key>k</Key>",
        "<Contents><Key>k</Key></Contents>", /* an empty object, or one without a size? */
        "<Contents></Contents>",
        "<Contents><Key></Key></Contents>",
        "<Contents><Key>k\x01</Key></Contents>",
        "<Contents><Key>\xff</Key></Contents>",
        "<Contents><Key>k</Key><Size>x</Size></Contents>",
        "<Contents><Key>k</Key><1>2</1></Contents>",
        "<Contents><Key>k</Key></Contents><!DOCTYPE x>",
    };
    (void)state;
    for (size_t i = 0; i < countof(bad); i++) {
        struct parsed p;
        if (parse_between(&p, bad[i]) >= 0)
            fail_msg("no error for %s", bad[i]);
        done(&p);
    }
}

static void a_document_that_is_cut_anywhere_is_an_error(void **state)
{
    static const char text[] = HEAD "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a&amp;b</Key>"
                                    "<ETag>&#34;e&#34;</ETag></Contents></ListBucketResult>";
    (void)state;
    for (size_t len = 0; len + 1 < sizeof text; len++) {
        struct parsed p;
        int r = parse(&p, (struct str){text, len});
        if (r >= 0)
            fail_msg("%zu of %zu bytes are taken for a document", len, sizeof text - 1);
        done(&p);
    }
}

static void a_megabyte_of_garbage_is_an_error(void **state)
{
    static const char *const pieces[] = {"x",    "<",         "<a ",  "<a b='", "&",   "&amp;",
                                         "<!--", "<![CDATA[", "<?p ", "]]>",    "\xff"};
    (void)state;
    for (size_t i = 0; i < countof(pieces); i++)
        for (int inside = 0; inside < 2; inside++) {
            struct parsed p;
            auto_sbuf b;
            sbuf_init(&b, 4 << 20);
            if (inside)
                sbuf_adds(&b, "<ListBucketResult><Contents><Key>");
            while (b.len < 1 << 20)
                sbuf_adds(&b, pieces[i]);
            assert_int_equal(parse(&p, sbuf_str(&b)), -ERR_CORRUPT);
            done(&p);
        }
}

static void errors_uploads_and_credentials_are_read(void **state)
{
    struct parsed p;
    (void)state;
    assert_int_equal(parse(&p, STR("<Error><Code>PermanentRedirect</Code><Message>go &lt;there&gt;</Message>"
                                   "<Region>eu-west-1</Region><RequestId>r</RequestId></Error>")),
                     0);
    assert_str(p.answer->code, "PermanentRedirect");
    assert_str(p.answer->message, "go <there>");
    assert_str(p.answer->region, "eu-west-1");
    done(&p);
    assert_int_equal(parse(&p, STR("<ListMultipartUploadsResult><Upload><Key>k</Key><UploadId>u1</UploadId>"
                                   "</Upload><Upload><Key>k2</Key><UploadId>u2</UploadId></Upload>"
                                   "</ListMultipartUploadsResult>")),
                     0);
    assert_int_equal(p.page.count, 2);
    assert_str(p.page.objects[1].key, "k2");
    assert_str(p.page.objects[1].upload_id, "u2");
    assert_str(p.page.objects[1].etag, "");
    done(&p);
    assert_int_equal(parse(&p, STR("<CompleteMultipartUploadResult><ETag>\"e-2\"</ETag><ChecksumCRC64NVME>AAAAAAAAAAA="
                                   "</ChecksumCRC64NVME><ChecksumType>FULL_OBJECT</ChecksumType>"
                                   "</CompleteMultipartUploadResult>")),
                     0);
    assert_int_equal(p.answer->checksum_kind, HASH_CRC64NVME);
    assert_false(p.answer->checksum_is_composite);
    done(&p);
}

static void malformed_replies_are_errors(void **state)
{
    static const char *const bad[] = {
        "",
        "garbage",
        "<ListBucketResult>",
        "<a><b></a></b>",
        "<!DOCTYPE x [<!ENTITY a \"b\">]><x>&a;</x>",
        "<!DOCTYPE x SYSTEM \"file:///etc/passwd\"><x/>",
        "<x>&undefined;</x>",
        "<ListBucketResult><Contents><Size>1</Size></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Key>k</Key><Size>-1</Size></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Key>k</Key><Size>18446744073709551616</Size></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Key>k</Key><LastModified>yesterday</LastModified></Contents></ListBucketResult>",
        "<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>%zz</Key></Contents></ListBucketResult>",
        "<a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a/></a></a></a></a></a></a></a></a></a></a></a></a></a></a></"
        "a></a>",
    };
    (void)state;
    for (size_t i = 0; i < countof(bad); i++) {
        struct parsed p;
        int r = parse(&p, str_of(bad[i]));
        if (r >= 0)
            fail_msg("no error for %s", bad[i]);
        done(&p);
    }
}

static void a_text_without_end_is_refused(void **state)
{
    struct parsed p;
    auto_sbuf b;
    (void)state;
    sbuf_init(&b, 1 << 20);
    sbuf_adds(&b, "<ListBucketResult><Contents><Key>");
    for (int i = 0; i < 70000; i++)
        sbuf_addc(&b, 'k');
    assert_int_equal(parse(&p, sbuf_str(&b)), -ERR_CORRUPT);
    done(&p);
}

static void a_parser_is_used_again(void **state)
{
    static const char text[] = "<ListBucketResult><Contents><Key>k</Key><Size>1</Size></Contents></ListBucketResult>";
    struct parsed p;
    (void)state;
    assert_int_equal(parse(&p, STR("<a>")), -ERR_CORRUPT);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(s3_document_read(p.xml, STR(text), &p.err), 0);
        assert_int_equal(p.page.count, 1);
    }
    done(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_is_read),
        cmocka_unit_test(only_a_plain_no_ends_a_listing),
        cmocka_unit_test(an_object_without_a_time_is_listed),
        cmocka_unit_test(keys_are_decoded_also_when_the_server_says_so_last),
        cmocka_unit_test(an_object_is_read_in_whatever_way_it_is_written),
        cmocka_unit_test(reply_that_is_not_xml_is_refused),
        cmocka_unit_test(a_document_that_is_cut_anywhere_is_an_error),
        cmocka_unit_test(a_megabyte_of_garbage_is_an_error),
        cmocka_unit_test(errors_uploads_and_credentials_are_read),
        cmocka_unit_test(malformed_replies_are_errors),
        cmocka_unit_test(a_text_without_end_is_refused),
        cmocka_unit_test(a_parser_is_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
