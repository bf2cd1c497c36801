/* propose_case.c - see propose_case.h. */
#include "support/propose_case.h"

void pc_refused(df_status status, df_status expected, const df_error *err, const char *code) {
    ck_assert_int_eq(status, expected);
    ck_assert_str_eq(err->code, code);
}

df_draft *pc_load(df_engine *engine, const char *dir) {
    df_draft *draft = NULL;
    df_error err = {0};
    ck_assert_msg(df_draft_load(engine, dir, &draft, &err) == DF_OK, "%s: %s", err.code, err.message);
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
