/* vectors_case.c - see vectors_case.h. A helper that fails ends the test. */
#include "support/vectors_case.h"

#include "base/sha256.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The digests of the tensors that took part are those of the stored checkpoint. */
static void check_digests(const vf_group *group, const dflash_draft *draft) {
    const cJSON *wanted;
    int found = 0, named = 0;
    cJSON_ArrayForEach(wanted, vf_param(group, "tensors")) {
        named++;
        for (int i = 0; i < dflash_draft_tensor_count(draft); i++) {
            const dflash_tensor_view view = dflash_draft_tensor(draft, i);
            char digest[65];
            if (strcmp(view.name, wanted->string) != 0) continue;
            dp_sha256_of(view.data, view.bytes, digest);
            ck_assert_msg(strcmp(digest, cJSON_GetStringValue(wanted)) == 0, "%s: %s is another tensor", group->path,
                          view.name);
            found++;
        }
    }
    ck_assert_msg(named > 0 && found == named, "%s names %d tensors, the checkpoint has %d of them", group->path, named,
                  found);
}

void vc_load(const vf_group *group, vc_model *model) {
    const dflash_engine_options options = {.threads = 1, .poison_scratch = true};
    dflash_error err = {0};
    *model = (vc_model){.engine = NULL};
    snprintf(model->path, sizeof model->path, "%s", vf_param_text(group, "checkpoint"));
    ck_assert_msg(dflash_engine_create(&options, &model->engine, &err) == DFLASH_OK, "%s", err.message);
    ck_assert_msg(dflash_draft_load(model->engine, model->path, &model->draft, &err) == DFLASH_OK, "%s", err.message);
    check_digests(group, model->draft);
}

void vc_release(vc_model *model) {
    dflash_draft_destroy(model->draft);
    dflash_engine_destroy(model->engine);
}

int vc_outside(const float *ours, const double *theirs, const dp_real *bound, int n) {
    int outside = 0;
    for (int i = 0; i < n; i++) {
        if (!(fabs(bound[i].value - theirs[i]) <= 1e-10 * fabs(theirs[i]) + 1e-12))
            ck_abort_msg("value %d: the test's own arithmetic gives %.17g, the reference %.17g", i, bound[i].value,
                         theirs[i]);
        outside += !(fabs((double)ours[i] - theirs[i]) <= bound[i].error);
    }
    return outside;
}
