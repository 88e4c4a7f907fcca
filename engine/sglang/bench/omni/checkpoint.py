"""A checkpoint with random weights, in the published shape or a tiny one, as SGLang-Omni loads it.

    python -m engine.sglang.bench.omni.checkpoint FOLDER [--tiny] [--seed N]

Runs in SGLang-Omni's environment: sizes and names come from its own configuration classes and from
transformers' modules, so that a version that changes them is noticed here.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import string
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

CONTEXT = 131_072
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|audio_start|>", "<|audio_pad|>", "<|audio_end|>")
CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% for part in message['content'] %}{% if part['type'] == 'audio' %}"
    "<|audio_start|><|audio_pad|><|audio_end|>{% else %}{{ part['text'] }}{% endif %}{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_TINY_TEXT = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
}
_TINY_AUDIO = {
    "d_model": 64,
    "encoder_layers": 2,
    "encoder_attention_heads": 1,
    "encoder_ffn_dim": 128,
}
_WEIGHT = 0.02
"""Standard deviation of the weights, as such models are initialized."""


def write(folder: Path, *, tiny: bool, seed: int = 0) -> Path:
    """Write a whole checkpoint to `folder`, some 4 MB or 1.8 GB; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    config = _config(tiny=tiny)
    ids = _tokenizer(folder, config.text_config.vocab_size)
    config.audio_token_id = ids["<|audio_pad|>"]
    config.save_pretrained(folder)
    for name, value in (
        ("preprocessor_config.json", _extractor(config)),
        ("processor_config.json", _processor()),
        ("generation_config.json", {"max_new_tokens": 5120, "eos_token_id": ids["<|im_end|>"]}),
    ):
        (folder / name).write_text(json.dumps(value, indent=1), "utf-8")
    (folder / "chat_template.jinja").write_text(CHAT, "utf-8")
    shutil.copyfile(Path(__file__).with_name("processing.py"), folder / "processing.py")
    save = import_module("safetensors.torch").save_file
    save(dict(_weights(config, seed)), folder / "model.safetensors", {"format": "pt"})
    return folder


def _config(*, tiny: bool) -> Any:
    """The published shape is what the configuration class has by default, context apart."""
    made = import_module("sglang_omni.models.moss_transcribe_diarize.hf_config").MossTranscribeDiarizeConfig
    shape = made().to_dict()
    text, audio = shape["text_config"], shape["audio_config"]
    if tiny:
        text |= _TINY_TEXT | {"layer_types": ["full_attention"] * _TINY_TEXT["num_hidden_layers"]}
        audio |= _TINY_AUDIO
    text["max_position_embeddings"] = CONTEXT
    return made(
        text_config=text,
        audio_config=audio,
        architectures=["MossTranscribeDiarizeForConditionalGeneration"],
        dtype="bfloat16",
    )


def _tokenizer(folder: Path, vocabulary: int) -> dict[str, int]:
    """One token a byte, so that any text can be asked; all other ids are words of four
    letters, so that what a random model answers is text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ("\u0120" + "".join(letters) for letters in itertools.product(string.ascii_lowercase, repeat=4))
    names = itertools.chain(alphabet, itertools.islice(words, vocabulary - len(alphabet) - len(SPECIAL)))
    tokenizer = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.save(str(folder / "tokenizer.json"))
    described = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(described, indent=1), "utf-8")
    return {name: tokenizer.token_to_id(name) or 0 for name in SPECIAL}


def _extractor(config: Any) -> dict[str, Any]:
    return {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": config.audio_config.num_mel_bins,
        "sampling_rate": 16000,
        "hop_length": 160,
        "chunk_length": 30,
        "n_fft": 400,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": False,
    }


def _processor() -> dict[str, Any]:
    return {
        "processor_class": "RandomProcessor",
        "auto_map": {"AutoProcessor": "processing.RandomProcessor"},
    }


def _weights(config: Any, seed: int) -> Iterator[tuple[str, Any]]:
    """Name and tensor of every parameter: what transformers' modules of this shape have, and the adaptor."""
    torch, transformers = import_module("torch"), import_module("transformers")
    whisper = import_module("transformers.models.whisper.modeling_whisper")
    wide, hidden = config.adaptor_input_dim, config.text_config.hidden_size
    with torch.device("meta"):
        parts = {
            "language_model": transformers.Qwen3Model(config.text_config),
            "whisper_encoder": whisper.WhisperEncoder(config.audio_config),
            "vq_adaptor.layers": torch.nn.Sequential(
                torch.nn.Linear(wide, hidden),
                torch.nn.SiLU(),
                torch.nn.Linear(hidden, hidden),
                torch.nn.LayerNorm(hidden),
            ),
        }
    dice = torch.Generator().manual_seed(seed)
    for part, module in parts.items():
        for name, parameter in module.named_parameters():
            norm = "norm" in name or (part.startswith("vq") and name.startswith("3."))
            if norm and name.endswith("weight"):
                tensor = torch.ones(parameter.shape)
            elif name.endswith("bias"):
                tensor = torch.zeros(parameter.shape)
            else:
                tensor = torch.randn(parameter.shape, generator=dice) * _WEIGHT
            yield f"model.{part}.{name}", tensor.to(torch.bfloat16)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m engine.sglang.bench.omni.checkpoint", description=__doc__
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tiny", action="store_true", help="two small layers each, for tries on any machine")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    write(options.folder, tiny=options.tiny, seed=options.seed)


if __name__ == "__main__":
    main()
