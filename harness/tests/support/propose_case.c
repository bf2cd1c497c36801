/* propose_case.c - see propose_case.h. */
#include "support/propose_case.h"

void pc_refused(dflash_status status, dflash_status expected, const dflash_error *err, const char *code) {
    ck_assert_int_eq(status, expected);
    ck_assert_str_eq(err->code, code);
}

dflash_draft *pc_load(dflash_engine *engine, const char *dir) {
    dflash_draft *draft = NULL;
    dflash_error err = {0};
    ck_assert_msg(dflash_draft_load(engine, dir, &draft, &err) == DFLASH_OK, "%s: %s", err.code, err.message);
    return draft;
}

int pc_draw(const float *probability, int n, float u) {
    double total = 0, sum = 0;
    for (int i = 0; i < n; i++) total += probability[i];
    for (int i = 0; i < n; i++) {
        sum += probability[i];
        if (sum > (double)u * total) return i;
    }
    return -1;
}
