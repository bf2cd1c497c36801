/* test_sha256.c - SHA-256 against the published vectors, lengths round every padding edge, and updates of any size. */
#include "suites.h"

#include "base/sha256.h"
#include "base/sha256_compress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect_text(const char *text, const char *digest) {
    char hex[65];
    dp_sha256_of(text, strlen(text), hex);
    ck_assert_str_eq(hex, digest);
}

START_TEST(the_empty_message_has_the_published_digest) {
    expect_text("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}
END_TEST

START_TEST(fips_180_messages_have_the_published_digests) {
    expect_text("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    expect_text("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    expect_text("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqr"
                "stnopqrstu",
                "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
}
END_TEST

START_TEST(a_million_letters_have_the_published_digest) {
    const size_t n = 1000000;
    char *text = malloc(n), hex[65];
    ck_assert_ptr_nonnull(text);
    memset(text, 'a', n);
    dp_sha256_of(text, n, hex);
    free(text);
    ck_assert_str_eq(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}
END_TEST

/* The digest over the digests of "a" x 0, 1, ... 200 covers every length round the 55, 56, 63, 64 and 119 byte edges.
 * The expected value comes from another implementation. */
START_TEST(every_length_up_to_200_pads_correctly) {
    char text[200], hex[65];
    memset(text, 'a', sizeof text);
    dp_sha256 all;
    dp_sha256_init(&all);
    for (size_t n = 0; n <= sizeof text; n++) {
        dp_sha256_of(text, n, hex);
        dp_sha256_update(&all, hex, 64);
    }
    dp_sha256_hex(&all, hex);
    ck_assert_str_eq(hex, "eb555248bd20c7831e511d4461b42c9b084e3a64b44d57b00051172f8afe03ff");
}
END_TEST

START_TEST(updates_of_any_size_give_the_digest_of_one_update) {
    unsigned char data[1000];
    uint32_t state = 1;
    for (size_t i = 0; i < sizeof data; i++) {
        state = state * 1664525u + 1013904223u;
        data[i] = (unsigned char)(state >> 24);
    }
    char whole[65], parts[65];
    dp_sha256_of(data, sizeof data, whole);
    for (size_t step = 1; step <= 130; step++) {
        dp_sha256 hash;
        dp_sha256_init(&hash);
        for (size_t at = 0; at < sizeof data; at += step) {
            dp_sha256_update(&hash, data + at, sizeof data - at < step ? sizeof data - at : step);
            dp_sha256_update(&hash, NULL, 0);
        }
        dp_sha256_hex(&hash, parts);
        ck_assert_str_eq(parts, whole);
    }
}
END_TEST

/* The vectors above meet one of the two; this ties the other to it. */
START_TEST(the_processor_and_portable_c_compress_alike) {
    const dp_sha256_compress_fn native = dp_sha256_compress_native();
    if (native == NULL) {
        fprintf(stderr, "suite sha256: no SHA instructions: 1 test not run\n");
        return;
    }
    unsigned char data[64 * 9];
    uint32_t state = 1, plain[8], ours[8];
    for (size_t round = 0; round < 200; round++) {
        for (size_t i = 0; i < sizeof data; i++) {
            state = state * 1664525u + 1013904223u;
            data[i] = (unsigned char)(state >> 24);
        }
        for (int i = 0; i < 8; i++) plain[i] = ours[i] = state = state * 1664525u + 1013904223u;
        dp_sha256_compress_plain(plain, data, round % 10);
        native(ours, data, round % 10);
        ck_assert_mem_eq(ours, plain, sizeof ours);
        data[round % 64] ^= 1;
        native(ours, data, 1);
        data[round % 64] ^= 1;
        dp_sha256_compress_plain(plain, data, 1);
        ck_assert_mem_ne(ours, plain, sizeof ours);
    }
}
END_TEST

START_TEST(one_flipped_bit_changes_the_digest) {
    unsigned char data[150] = {0};
    char before[65], after[65];
    dp_sha256_of(data, sizeof data, before);
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] ^= 0x10;
        dp_sha256_of(data, sizeof data, after);
        data[i] ^= 0x10;
        ck_assert_str_ne(after, before);
    }
}
END_TEST

/* More than 2^32 bits, so that the high word of the length counts. The expected value comes from another
 * implementation. */
START_TEST(a_message_longer_than_two_to_the_32_bits_has_the_right_length_field) {
    const size_t chunk = (size_t)1 << 20, times = 513;
    char *zeros = calloc(chunk, 1), hex[65];
    ck_assert_ptr_nonnull(zeros);
    dp_sha256 hash;
    dp_sha256_init(&hash);
    for (size_t i = 0; i < times; i++) dp_sha256_update(&hash, zeros, chunk);
    dp_sha256_hex(&hash, hex);
    free(zeros);
    ck_assert_str_eq(hex, "a3e2acbb469e4e59dde406f912e754c933c1ac0fb0092a3634d61d5073309c0c");
}
END_TEST

Suite *suite_sha256(void) {
    Suite *suite = suite_create("sha256");
    TCase *tcase = tcase_create("digests");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, the_empty_message_has_the_published_digest);
    tcase_add_test(tcase, fips_180_messages_have_the_published_digests);
    tcase_add_test(tcase, a_million_letters_have_the_published_digest);
    tcase_add_test(tcase, every_length_up_to_200_pads_correctly);
    tcase_add_test(tcase, updates_of_any_size_give_the_digest_of_one_update);
    tcase_add_test(tcase, the_processor_and_portable_c_compress_alike);
    tcase_add_test(tcase, one_flipped_bit_changes_the_digest);
    tcase_add_test(tcase, a_message_longer_than_two_to_the_32_bits_has_the_right_length_field);
    suite_add_tcase(suite, tcase);
    return suite;
}
