"""Model folders without weights, for SGLang's `load_format="dummy"`: speed of a size, not its words."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|audio_start|>",
    "<|audio_end|>",
    "<|audio_pad|>",
    "<asr_text>",
)

_TEXT_06B = {
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
}
_AUDIO_06B = {
    "d_model": 896,
    "encoder_layers": 18,
    "encoder_attention_heads": 14,
    "encoder_ffn_dim": 3584,
    "output_dim": 1024,
    "downsample_hidden_size": 480,
}
_TEXT_TINY = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 272,
}
_AUDIO_TINY = {
    "d_model": 64,
    "encoder_layers": 2,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "output_dim": 64,
    "downsample_hidden_size": 16,
}


def encoder_decoder(folder: Path, like: Path) -> Path:
    """A folder of the published "turbo" size (809 M: 32 encoder and 4 decoder layers of width 1280).

    Tokenizer and vocabulary are those of `like`, whose prompts it then takes.
    """
    config = json.loads((like / "config.json").read_text("utf-8"))
    config |= {
        "d_model": 1280,
        "num_mel_bins": 128,
        "encoder_layers": 32,
        "encoder_attention_heads": 20,
        "encoder_ffn_dim": 5120,
        "decoder_layers": 4,
        "decoder_attention_heads": 20,
        "decoder_ffn_dim": 5120,
        "num_hidden_layers": 32,
        "torch_dtype": "bfloat16",
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(like / name, folder / name)
    extractor = json.loads((like / "preprocessor_config.json").read_text("utf-8"))
    _dump(folder / "preprocessor_config.json", extractor | {"feature_size": 128})
    _dump(folder / "config.json", config)
    return folder


def decoder_only(folder: Path, *, tiny: bool) -> Path:
    """A folder of the 0.6 B audio language model's shape, or of a tiny one for a CPU.

    The tokenizer is byte-level, one token a byte: any text round-trips.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    folder.mkdir(parents=True, exist_ok=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.save(str(folder / "tokenizer.json"))
    ids = {name: tokenizer.token_to_id(name) or 0 for name in SPECIAL}
    _dump(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "model_max_length": 65536,
            "clean_up_tokenization_spaces": False,
        },
    )
    _dump(
        folder / "preprocessor_config.json",
        {
            "feature_extractor_type": "WhisperFeatureExtractor",
            "feature_size": 128,
            "sampling_rate": 16000,
            "hop_length": 160,
            "chunk_length": 30,
            "n_fft": 400,
            "padding_side": "right",
            "padding_value": 0.0,
            "return_attention_mask": True,
        },
    )
    _dump(folder / "config.json", _thinker(ids, tiny=tiny))
    return folder


def _thinker(ids: dict[str, int], *, tiny: bool) -> dict[str, Any]:
    text, audio = (_TEXT_TINY, _AUDIO_TINY) if tiny else (_TEXT_06B, _AUDIO_06B)
    sections = [4, 2, 2] if tiny else [24, 20, 20]
    return {
        "architectures": ["Qwen3ASRForConditionalGeneration"],
        "model_type": "qwen3_asr",
        "torch_dtype": "float32" if tiny else "bfloat16",
        "thinker_config": {
            "model_type": "qwen3_asr_thinker",
            "audio_token_id": ids["<|audio_pad|>"],
            "audio_start_token_id": ids["<|audio_start|>"],
            "audio_end_token_id": ids["<|audio_end|>"],
            "audio_config": {
                "num_mel_bins": 128,
                "max_source_positions": 1500,
                "n_window": 50,
                "n_window_infer": 800,
                "conv_chunksize": 500,
                "activation_function": "gelu",
                "scale_embedding": False,
                **audio,
            },
            "text_config": {
                "model_type": "qwen3",
                "max_position_embeddings": 65536,
                "rms_norm_eps": 1e-6,
                "rope_theta": 1000000.0,
                "rope_scaling": {
                    "rope_type": "default",
                    "mrope_section": sections,
                    "mrope_interleaved": True,
                    "interleaved": True,
                },
                "hidden_act": "silu",
                "tie_word_embeddings": True,
                "attention_bias": False,
                "bos_token_id": None,
                "eos_token_id": ids["<|im_end|>"],
                **text,
            },
        },
    }


def _dump(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1), "utf-8")
