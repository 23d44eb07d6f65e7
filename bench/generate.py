"""Generating text with models of the transformers library, small and with random weights: smelt against eager and
torch.compile, every row in a process of its own, all in turn. A row is a model, its cache of keys and values, and how tokens are chosen;
what is compiled is the model's forward, which generate() calls once for each of 128 tokens.

  eager          milliseconds per token, median
  smelt, torch   eager's time divided by theirs: how many times faster, median over the rounds
  against        torch.compile's time divided by smelt's
  first          milliseconds of smelt's first 128 tokens
  compiles       programs that smelt has made, and behind which token the last was made

Must hold: eager's tokens; no program is made behind the third token; at least 1.5 times as fast as eager, and as fast as
torch.compile.
"""
import functools
import importlib.util
import sys
import warnings

import torch

import measure
from measure import rows

TOKENS, PROMPT, WORDS = 128, 12, 1000
ROWS = {f'{model}_{cache}_{choice}': (model, cache, choice) for model in ('gpt2', 'llama', 't5')
        for cache in ('dynamic', 'static') for choice in ('greedy', 'sample')}


def make_model(name):
    import transformers
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    if name == 'gpt2':
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
            n_layer=4, n_head=4, n_embd=128, vocab_size=WORDS, n_positions=512))
    elif name == 'llama':
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            hidden_size=128, intermediate_size=256, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
            vocab_size=WORDS, max_position_embeddings=512))
    else:
        model = transformers.T5ForConditionalGeneration(transformers.T5Config(
            d_model=128, d_ff=256, num_layers=4, num_heads=4, d_kv=32, vocab_size=WORDS, decoder_start_token_id=0))
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model.eval()


class Generation:
    """128 tokens with one way to run the model's forward."""

    def __init__(self, model, cache, choice, forward, count=None):
        self.model, self.count, self.counts = model, count, []
        self.prompt = torch.randint(1, WORDS, (1, PROMPT), generator=torch.Generator().manual_seed(1))
        self.keywords = {'max_new_tokens': TOKENS, 'min_new_tokens': TOKENS, 'do_sample': choice == 'sample',
                         'disable_compile': True}  # by generate() itself
        if cache == 'static':
            self.keywords['cache_implementation'] = 'static'
        self.forward = self.counted(forward) if count else forward

    def counted(self, forward):
        @functools.wraps(self.model.forward)
        def call(*args, **kwargs):
            result = forward(*args, **kwargs)
            self.counts.append(self.count())
            return result
        return call

    @torch.no_grad()
    def __call__(self):
        torch.manual_seed(3)
        self.counts.clear()
        self.model.forward = self.forward
        try:
            return self.model.generate(self.prompt, **self.keywords)
        finally:
            del self.model.forward


def measure_row(name, arguments):
    import smelt
    warnings.simplefilter('ignore')
    model_name, cache, choice = ROWS[name]
    model = make_model(model_name)
    forward = model.forward
    ways = {'eager': Generation(model, cache, choice, forward),
            'smelt': Generation(model, cache, choice, smelt.compile(forward), lambda: smelt.stats()['graphs'])}
    if not arguments.alone:
        ways['torch'] = Generation(model, cache, choice, torch.compile(forward))
    row = {'row': name, 'threads': torch.get_num_threads()}
    expected = ways['eager']()
    before = smelt.stats()['graphs']
    row['smelt_first'], found = measure.once(ways['smelt'])
    counts = ways['smelt'].counts
    row['compiles'] = counts[-1] - before
    row['last_compile'] = max((i for i in range(len(counts)) if counts[i] > (counts[i - 1] if i else before)), default=0) + 1
    row['same'] = torch.equal(found, expected)
    for _ in range(2):
        row['same'] &= torch.equal(ways['smelt'](), expected)
    row['compiles_later'] = smelt.stats()['graphs'] - before - row['compiles']
    for _ in range(2 if 'torch' in ways else 0):
        ways['torch']()
    samples = rows.in_turn(ways, arguments.seconds)
    row['eager_ms'] = rows.median_ms(samples, 'eager') / TOKENS
    for way in list(ways)[1:]:
        row[f'{way}_speed'] = rows.ratio(samples, 'eager', way)
    if 'torch' in ways:
        row['against'] = rows.ratio(samples, 'torch', 'smelt')
    return row


def failures(row):
    if not row['same']:
        yield "other tokens than eager's"
    if row['last_compile'] > 3 or row['compiles_later']:
        yield 'compiled behind the third token'
    if row['smelt_speed'] < 1.5:
        yield 'less than 1.5 times eager'
    if row.get('against', 1) < 1:
        yield 'slower than torch.compile'


def show(row):
    torch_speed, against = (f'{row[key]:.2f}' if key in row else '' for key in ('torch_speed', 'against'))
    return (f'{row["row"]:<22}{row["eager_ms"]:>10.3f}{row["smelt_speed"]:>8.2f}{torch_speed:>8}{against:>9}'
            f'{1e3 * row["smelt_first"]:>10.0f}{row["compiles"]:>10}{row["last_compile"]:>6}')


def main():
    parser = rows.parser('generate', __doc__, ROWS, seconds=6)
    if not importlib.util.find_spec('transformers'):
        print('skipped: the transformers library is not installed')
        return 0
    header = (f'{"":<22}{"eager ms":>10}{"smelt":>8}{"torch":>8}{"against":>9}{"first ms":>10}{"compiles":>10}{"last":>6}')
    return rows.run(parser, ROWS, measure_row, failures, show, header)


if __name__ == '__main__':
    sys.exit(main())
