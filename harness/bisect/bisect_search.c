/* bisect_search.c - see bisect_search.h. */
#include "bisect/bisect_search.h"

#include "common/error.h"

#include <stdlib.h>

dflash_status dp_search_begin(int count, dp_search *out, dflash_error *err) {
    *out = (dp_search){.count = count, .state = calloc((size_t)count, sizeof *out->state)};
    if (out->state == NULL) return df_fail_memory(err, "the candidates of a search", (size_t)count);
    out->state[count - 1] = DP_TRIAL_BAD;
    return DFLASH_OK;
}

void dp_search_release(dp_search *search) {
    free(search->state);
    *search = (dp_search){.state = NULL};
}

void dp_search_suspects(const dp_search *search, int *first, int *last) {
    *last = search->count - 1;
    for (int i = search->count - 1; i >= 0; i--)
        if (search->state[i] == DP_TRIAL_BAD) *last = i;
    *first = 0;
    for (int i = 0; i < *last; i++)
        if (search->state[i] == DP_TRIAL_GOOD) *first = i + 1;
}

int dp_search_next(const dp_search *search) {
    int first, last, best = -1;
    dp_search_suspects(search, &first, &last);
    const int middle = first + (last - first) / 2;
    for (int i = first; i < last; i++)
        if (search->state[i] == DP_TRIAL_NONE && (best < 0 || abs(i - middle) < abs(best - middle))) best = i;
    return best;
}

int dp_search_steps(const dp_search *search) {
    int first, last, steps = 0, untried = 0;
    dp_search_suspects(search, &first, &last);
    for (int i = first; i < last; i++) untried += search->state[i] == DP_TRIAL_NONE;
    for (int left = untried; left > 0; left /= 2) steps++;
    return steps;
}
