"""model.py OUT: writes a Llama of 158 thousand float32 weights with its tokenizer, the same bytes each time.

The weights are noise from a fixed seed, so that the text is nonsense, but a small change of the
prompt changes it: what a comparison of two engines needs. 2,048 positions.
"""

import json
import os
import sys

import numpy
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD, POSITIONS = 64, 128, 2, 4, 2, 32, 2048
SPECIAL = ["<s>", "</s>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"]
WORDS = """the of and to in a is that for it as was with be by on not are this have from or had an they which one
prefill decode block cache router engine token model server request queue network transfer memory worker batch
stream prompt answer metric health probe retry timeout lease handle remote local page weight layer head""".split()
# Tools come first, as JSON. A message may lack content, such as an assistant's that calls tools.
TEMPLATE = (
    "{{ bos_token }}{% if tools %}<|system|>{{ tools | tojson }}{{ eos_token }}{% endif %}"
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] or '' }}"
    "{% if m['tool_calls'] %}{{ m['tool_calls'] | tojson }}{% endif %}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def tokenizer():
    """A byte-level BPE: the special tokens, the 256 bytes, then one merge after the other until each word is a token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {t: i for i, t in enumerate(SPECIAL + alphabet)}
    merges = []
    for word in WORDS:
        word = "\u0120" + word  # how byte-level BPE writes a leading blank
        for end in range(2, len(word) + 1):
            if word[:end] not in vocab:
                vocab[word[:end]] = len(vocab)
                merges.append((word[: end - 1], word[end - 1]))
    t = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIAL])
    return t, len(vocab)


def weights(vocab):
    """numpy promises that RandomState draws the same numbers in every release; torch does not."""
    rng = numpy.random.RandomState(1234)

    def noise(*shape):
        return (rng.standard_normal(shape) * 0.25).astype(numpy.float32)

    w = {"model.embed_tokens.weight": noise(vocab, HIDDEN), "lm_head.weight": noise(vocab, HIDDEN)}
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        w[at + "self_attn.q_proj.weight"] = noise(HEADS * HEAD, HIDDEN)
        w[at + "self_attn.k_proj.weight"] = noise(KV_HEADS * HEAD, HIDDEN)
        w[at + "self_attn.v_proj.weight"] = noise(KV_HEADS * HEAD, HIDDEN)
        w[at + "self_attn.o_proj.weight"] = noise(HIDDEN, HEADS * HEAD)
        w[at + "mlp.gate_proj.weight"] = noise(INNER, HIDDEN)
        w[at + "mlp.up_proj.weight"] = noise(INNER, HIDDEN)
        w[at + "mlp.down_proj.weight"] = noise(HIDDEN, INNER)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            w[at + norm + ".weight"] = numpy.ones(HIDDEN, numpy.float32)
    w["model.norm.weight"] = numpy.ones(HIDDEN, numpy.float32)
    return w


def config(vocab):
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "float32",
        "vocab_size": vocab,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD,
        "max_position_embeddings": POSITIONS,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "bos_token_id": SPECIAL.index("<s>"),
        "eos_token_id": SPECIAL.index("</s>"),
    }


def main(out):
    os.makedirs(out, exist_ok=True)

    def write(name, value):
        with open(os.path.join(out, name), "w") as f:
            json.dump(value, f, indent=1)

    t, vocab = tokenizer()
    t.save(os.path.join(out, "tokenizer.json"))
    write("tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "</s>",
        "model_max_length": POSITIONS,
        "chat_template": TEMPLATE,
    })
    write("config.json", config(vocab))
    write("generation_config.json", {"bos_token_id": SPECIAL.index("<s>"), "eos_token_id": SPECIAL.index("</s>")})
    w = weights(vocab)
    save_file(w, os.path.join(out, "model.safetensors"), metadata={"format": "pt"})
    print(f"model: {sum(a.size for a in w.values())} weights, {vocab} tokens")


main(sys.argv[1])
