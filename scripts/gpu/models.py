"""models.py FOLDER: model folders without weights, for vLLM's --load-format dummy.

Each has the shape of a published model and a small byte-level tokenizer. A model with dummy weights
answers with arbitrary ids, so every id of the model has a text. This matters: for as long as an answer
has no text, vLLM's API server decodes its whole prompt again for each token. At 5,000 tokens that takes
a millisecond of its only event loop, and at 1,000 tokens a second the server stalls (docs/results/gpu.md).
FOLDER/blank has the tokenizer without those texts, to show just that.
"""
import json
import os
import random
import sys

WORDS = """the of and to in a is that for it as was with be by on not he his but at are this have from
or had an they which one prefill decode block cache router engine token model server request queue
network transfer memory worker scheduler latency batch stream prompt answer metric health probe retry
timeout lease handle remote local page weight layer head""".split()
CHAT = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
COMMON = dict(
    bos_token_id=0, eos_token_id=1, torch_dtype="bfloat16", use_cache=True, attention_bias=False,
    attention_dropout=0.0, hidden_act="silu", initializer_range=0.02, head_dim=128, num_key_value_heads=8,
)


def trained():
    """A tokenizer of some 500 tokens, which has one for each byte."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    rnd = random.Random(0)
    text = [" ".join(rnd.choice(WORDS) for _ in range(20)) + "." for _ in range(400)]
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    tok.post_processor = processors.TemplateProcessing(single="$A", pair="$A $B:1", special_tokens=[])
    tok.train_from_iterator(text, trainers.BpeTrainer(
        vocab_size=512, special_tokens=["<s>", "</s>", "<|user|>", "<|assistant|>", "<|system|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return json.loads(tok.to_str())


def with_texts(tok, size):
    """The same tokenizer, in which every id below size has a text. No prompt becomes these ids."""
    tok = json.loads(json.dumps(tok))
    vocab = tok["model"]["vocab"]
    for i in range(max(vocab.values()) + 1, size):
        vocab["Ġw%06d" % i] = i
    return tok


def write(folder, tok, config):
    os.makedirs(folder, exist_ok=True)
    files = {
        "config": config | COMMON,
        "generation_config": dict(bos_token_id=0, eos_token_id=1, do_sample=False),
        "tokenizer_config": dict(
            backend="tokenizers", bos_token="<s>", eos_token="</s>", pad_token="</s>",
            model_max_length=config["max_position_embeddings"], tokenizer_class="TokenizersBackend"),
        "tokenizer": tok,
    }
    for name, value in files.items():
        with open(f"{folder}/{name}.json", "w") as f:
            json.dump(value, f, indent=1, ensure_ascii=False)
    with open(f"{folder}/chat_template.jinja", "w") as f:
        f.write(CHAT)


def qwen3(hidden, inner, layers, heads, tie):
    return dict(
        architectures=["Qwen3ForCausalLM"], model_type="qwen3", hidden_size=hidden, intermediate_size=inner,
        num_hidden_layers=layers, num_attention_heads=heads, max_position_embeddings=40960, rms_norm_eps=1e-6,
        rope_theta=1e6, rope_parameters=dict(rope_type="default", rope_theta=1e6), tie_word_embeddings=tie,
        use_sliding_window=False, sliding_window=None, max_window_layers=layers, vocab_size=151936)


def llama3(hidden, inner, layers, heads):
    rope = dict(
        factor=8.0, high_freq_factor=4.0, low_freq_factor=1.0, original_max_position_embeddings=8192,
        rope_type="llama3", rope_theta=5e5)
    return dict(
        architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=hidden, intermediate_size=inner,
        num_hidden_layers=layers, num_attention_heads=heads, max_position_embeddings=131072, rms_norm_eps=1e-5,
        rope_theta=5e5, rope_scaling=rope, rope_parameters=rope, tie_word_embeddings=False, mlp_bias=False,
        pretraining_tp=1, vocab_size=128256)


def main():
    root, tok = sys.argv[1], trained()
    shapes = {
        "qwen3-8b": qwen3(4096, 12288, 36, 32, False),
        "qwen3-0.6b": qwen3(1024, 3072, 28, 16, True),
        "llama-3.1-8b": llama3(4096, 14336, 32, 32),
        "llama-3.3-70b": llama3(8192, 28672, 80, 64),
    }
    for name, config in shapes.items():
        write(os.path.join(root, name), with_texts(tok, config["vocab_size"]), config)
    write(os.path.join(root, "blank"), tok, shapes["qwen3-8b"])


if __name__ == "__main__":
    main()
