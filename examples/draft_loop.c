/*
 * draft_loop.c - the whole of speculative drafting with libdflash: load, take in the context, draft, verify, go on.
 *
 *   cc draft_loop.c $(pkg-config --cflags --libs dflash) -o draft_loop
 *   ./draft_loop CHECKPOINT ROUNDS     CHECKPOINT holds embed_tokens.weight and lm_head.weight of the target
 *
 * The target is played by two functions here: hidden states that follow from the position alone, and a verdict that
 * accepts every other draft whole.
 */
#include <dflash.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { PROMPT = 24 };

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        if ((call) != DFLASH_OK) {                                                                                     \
            fprintf(stderr, "draft_loop: %s: %s\n", error.code, error.message);                                        \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static void target_hidden_states(const dflash_config *c, int first, int rows, float *taps, int32_t *pos) {
    const size_t width = (size_t)c->n_taps * (size_t)c->hidden;
    for (int r = 0; r < rows; r++) {
        pos[r] = first + r;
        for (size_t i = 0; i < width; i++) taps[(size_t)r * width + i] = (float)sin(0.1 * (double)i + (first + r));
    }
}

int main(int argc, char **argv) {
    dflash_error error = {DFLASH_OK, "", ""};
    dflash_engine_options options = {.backend = DFLASH_BACKEND_CPU};
    dflash_engine *engine;
    dflash_draft *draft;
    dflash_table *embedding, *head;
    dflash_kv *kv;
    char model[4096];
    if (argc != 3 || snprintf(model, sizeof model, "%s/model.safetensors", argv[1]) >= (int)sizeof model) return 2;
    CHECK(dflash_engine_create(&options, &engine, &error));
    CHECK(dflash_draft_load(engine, argv[1], &draft, &error));
    CHECK(dflash_table_load(engine, model, "embed_tokens.weight", &embedding, &error));
    CHECK(dflash_table_load(engine, model, "lm_head.weight", &head, &error));
    const dflash_config *c = dflash_draft_config(draft);
    const int block = c->block, rows = PROMPT > block ? PROMPT : block, vocab = dflash_table_vocab(head);
    int first, drafts;
    dflash_harvest_rows(c, &first, &drafts);
    CHECK(dflash_kv_create(draft, PROMPT + (atoi(argv[2]) + 1) * block, &kv, &error));
    float *taps = malloc((size_t)rows * (size_t)c->n_taps * (size_t)c->hidden * sizeof *taps);
    float *noise = malloc((size_t)block * (size_t)c->hidden * sizeof *noise),
          *out = malloc(sizeof *out * (size_t)block * (size_t)c->hidden);
    float *logits = malloc((size_t)drafts * (size_t)vocab * sizeof *logits);
    int32_t *pos = malloc((size_t)rows * sizeof *pos), *token = malloc((size_t)drafts * sizeof *token), anchor = 1;
    if (!taps || !noise || !out || !logits || !pos || !token) return 1;
    int next = PROMPT; /* position of the anchor: the last token that the target has chosen */
    target_hidden_states(c, 0, next, taps, pos);
    CHECK(dflash_ingest_taps(draft, kv, taps, pos, next, &error));
    for (int round = 0; round < atoi(argv[2]); round++) {
        const dflash_proposal proposal = {.token = token};
        for (int i = 0; i < block; i++) pos[i] = next + i;
        CHECK(dflash_embed_block(draft, embedding, anchor, noise, &error));
        CHECK(dflash_forward_round(draft, kv, noise, pos, out, &error));
        CHECK(dflash_logits(draft, head, out + (size_t)first * (size_t)c->hidden, drafts, logits, &error));
        CHECK(dflash_propose(draft, head, logits, out + (size_t)first * (size_t)c->hidden, drafts, vocab, anchor,
                             &(dflash_proposal_options){.temperature = 0.0f}, &proposal, &error));
        const int accepted = round % 2 == 0 ? drafts : 1; /* the target says */
        printf("round %d at %d, accepted %d of %d:", round, next, accepted, drafts);
        for (int i = 0; i < drafts; i++) printf(" %d%s", token[i], i == drafts - 1 ? "\n" : "");
        target_hidden_states(c, next, accepted, taps, pos);
        CHECK(dflash_ingest_taps(draft, kv, taps, pos, accepted, &error));
        anchor = token[accepted - 1], next += accepted;
    }
    free(taps), free(noise), free(out), free(logits), free(pos), free(token);
    dflash_kv_destroy(kv), dflash_table_destroy(head), dflash_table_destroy(embedding);
    dflash_draft_destroy(draft), dflash_engine_destroy(engine);
    return 0;
}
