"""visionmodel.py TEXT OUT: makes a LLaVA of the Llama in TEXT (model.py) and a small image encoder, the same bytes each time.

The encoder's weights are noise as well. Each image becomes 16 tokens, and another image another text.
"""

import json
import os
import sys

import numpy
from safetensors.numpy import load_file, save_file
from tokenizers import AddedToken, Tokenizer

HIDDEN, INNER, LAYERS, HEADS, SIDE, PATCH = 64, 128, 2, 4, 56, 14
PATCHES = (SIDE // PATCH) ** 2
IMAGE = "<image>"


def read(folder, name):
    with open(os.path.join(folder, name)) as f:
        return json.load(f)


def weights(text, hidden, vocab):
    """The text model gets a row for the token of an image."""
    rng = numpy.random.RandomState(4321)

    def noise(*shape):
        return (rng.standard_normal(shape) * 0.25).astype(numpy.float32)

    w = {"language_model." + name: v for name, v in text.items()}
    for name in ("language_model.model.embed_tokens.weight", "language_model.lm_head.weight"):
        w[name] = numpy.concatenate([w[name], noise(vocab - len(w[name]), hidden)])

    def linear(name, out, into):
        w[name + ".weight"], w[name + ".bias"] = noise(out, into), noise(out)

    def norm(name):
        w[name + ".weight"], w[name + ".bias"] = numpy.ones(HIDDEN, numpy.float32), numpy.zeros(HIDDEN, numpy.float32)

    tower = "vision_tower.vision_model."
    w[tower + "embeddings.class_embedding"] = noise(HIDDEN)
    w[tower + "embeddings.patch_embedding.weight"] = noise(HIDDEN, 3, PATCH, PATCH)
    w[tower + "embeddings.position_embedding.weight"] = noise(PATCHES + 1, HIDDEN)
    norm(tower + "pre_layrnorm")  # CLIP's own spelling
    norm(tower + "post_layernorm")
    for i in range(LAYERS):
        at = f"{tower}encoder.layers.{i}."
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            linear(at + "self_attn." + part, HIDDEN, HIDDEN)
        linear(at + "mlp.fc1", INNER, HIDDEN)
        linear(at + "mlp.fc2", HIDDEN, INNER)
        norm(at + "layer_norm1")
        norm(at + "layer_norm2")
    linear("multi_modal_projector.linear_1", hidden, HIDDEN)
    linear("multi_modal_projector.linear_2", hidden, hidden)
    return w


def config(text, vocab, image):
    return {
        "architectures": ["LlavaForConditionalGeneration"],
        "model_type": "llava",
        "torch_dtype": "float32",
        "image_token_index": image,
        "image_seq_length": PATCHES,
        "projector_hidden_act": "gelu",
        "multimodal_projector_bias": True,
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "default",
        "tie_word_embeddings": False,
        "text_config": {**text, "vocab_size": vocab},
        "vision_config": {
            "model_type": "clip_vision_model",
            "hidden_size": HIDDEN,
            "intermediate_size": INNER,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "image_size": SIDE,
            "patch_size": PATCH,
            "projection_dim": HIDDEN,
        },
    }


def processor():
    return {
        "processor_class": "LlavaProcessor",
        "image_token": IMAGE,
        "patch_size": PATCH,
        "num_additional_image_tokens": 1,
        "vision_feature_select_strategy": "default",
        "image_processor": {
            "image_processor_type": "CLIPImageProcessor",
            "size": {"shortest_edge": SIDE},
            "crop_size": {"height": SIDE, "width": SIDE},
            "do_convert_rgb": True,
            "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.25, 0.25, 0.25],
        },
    }


def main(text, out):
    os.makedirs(out, exist_ok=True)

    def write(name, value):
        with open(os.path.join(out, name), "w") as f:
            json.dump(value, f, indent=1)

    t = Tokenizer.from_file(os.path.join(text, "tokenizer.json"))
    t.add_special_tokens([AddedToken(IMAGE, special=True, normalized=False)])
    t.save(os.path.join(out, "tokenizer.json"))
    tokens = read(text, "tokenizer_config.json")
    write("tokenizer_config.json", {**tokens, "processor_class": "LlavaProcessor", "extra_special_tokens": {"image_token": IMAGE}})
    write("generation_config.json", read(text, "generation_config.json"))
    write("processor_config.json", processor())
    with open(os.path.join(out, "chat_template.jinja"), "w") as f:
        f.write(tokens["chat_template"])
    base = read(text, "config.json")
    vocab = t.get_vocab_size()
    write("config.json", config(base, vocab, t.token_to_id(IMAGE)))
    w = weights(load_file(os.path.join(text, "model.safetensors")), base["hidden_size"], vocab)
    save_file(w, os.path.join(out, "model.safetensors"), metadata={"format": "pt"})
    print(f"vision model: {sum(a.size for a in w.values())} weights, {vocab} tokens")


main(sys.argv[1], sys.argv[2])
