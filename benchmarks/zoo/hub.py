"""Models of the transformers library, built from configurations with random weights."""

from __future__ import annotations

from typing import Any

# Of each: the field, the model's class, its configuration's, what that is given at a width, and the
# expression of a call's arguments. `BASE` is what most have in common.
Row = tuple[str, str, str, dict[str, Any], str]
_TOKENS = "torch.randint(3, 100, ({batch}, {length}))"
_IMAGE = "torch.randn({batch}, 3, {side}, {side})"


def _base(width: int, **more: Any) -> dict[str, Any]:
    return {
        "vocab_size": 100,
        "hidden_size": width,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 2 * width,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **more,
    }


def _vision(width: int, **more: Any) -> dict[str, Any]:
    common = _base(width, **more)
    ids = ("vocab_size", "pad_token_id", "bos_token_id", "eos_token_id")
    return {key: value for key, value in common.items() if key not in ids}


def rows(width: int) -> dict[str, Row]:
    """The models at a hidden width that is a multiple of 16."""
    few = {"num_key_value_heads": 2}
    head = {"head_dim": width // 4}
    ids = {"vocab_size": 100, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    bart = {
        f"{side}_{what}": size
        for side in ("encoder", "decoder")
        for what, size in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 2 * width))
    }
    gpt2 = {**ids, "n_embd": width, "n_layer": 2, "n_head": 4}
    t5 = {"vocab_size": 100, "d_model": width, "d_kv": width // 4, "d_ff": 2 * width}
    distil = {"vocab_size": 100, "dim": width, "n_layers": 2, "n_heads": 4}
    whisper = {"d_model": width, "encoder_layers": 2, "encoder_attention_heads": 4}
    stages = {"hidden_sizes": [width // 2, width], "depths": [1, 1]}
    pyramid = {"num_encoder_blocks": 2, "sr_ratios": [4, 2], "patch_sizes": [7, 3]}
    pyramid |= {"strides": [4, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2]}
    text, vision, audio = "text", "vision", "audio"
    return {
        "GPT-2": (text, "GPT2LMHeadModel", "GPT2Config", gpt2, _TOKENS),
        "Llama": (text, "LlamaForCausalLM", "LlamaConfig", _base(width, **few), _TOKENS),
        "Mistral": (
            *(text, "MistralForCausalLM", "MistralConfig"),
            *(_base(width, sliding_window=8, **few), _TOKENS),
        ),
        "Qwen2": (text, "Qwen2ForCausalLM", "Qwen2Config", _base(width, **few), _TOKENS),
        "Gemma 2": (
            *(text, "Gemma2ForCausalLM", "Gemma2Config"),
            *(_base(width, **few, **head), _TOKENS),
        ),
        "BERT": (text, "BertModel", "BertConfig", _base(width), _TOKENS),
        "RoBERTa": (
            *(text, "RobertaForSequenceClassification", "RobertaConfig"),
            *(_base(width), _TOKENS),
        ),
        "DistilBERT": (
            *(text, "DistilBertModel", "DistilBertConfig"),
            *({**distil, "hidden_dim": 2 * width}, _TOKENS),
        ),
        "T5 encoder": (
            *(text, "T5EncoderModel", "T5Config"),
            *({**t5, "num_layers": 2, "num_heads": 4}, _TOKENS),
        ),
        "BART": (text, "BartModel", "BartConfig", {**ids, "d_model": width, **bart}, _TOKENS),
        "CLIP's text": (
            *(text, "CLIPTextModel", "CLIPTextConfig"),
            *(_base(width, max_position_embeddings=512), _TOKENS),
        ),
        "Mixtral": (
            *("mixture of experts", "MixtralForCausalLM", "MixtralConfig"),
            *(_base(width, num_local_experts=4, **few), _TOKENS),
        ),
        "Mamba": (
            *("state space", "MambaForCausalLM", "MambaConfig"),
            *({**ids, "hidden_size": width, "num_hidden_layers": 2, "state_size": 8}, _TOKENS),
        ),
        "ViT": (
            *(vision, "ViTModel", "ViTConfig"),
            *(_vision(width, image_size=32, patch_size=8), _IMAGE.replace("{side}", "32")),
        ),
        "ResNet": (
            *(vision, "ResNetModel", "ResNetConfig"),
            *({"embedding_size": width // 2, **stages}, _IMAGE.replace("{side}", "64")),
        ),
        "ConvNeXt": (
            *(vision, "ConvNextModel", "ConvNextConfig"),
            *({"num_stages": 2, **stages}, _IMAGE.replace("{side}", "64")),
        ),
        "SegFormer": (
            *(vision, "SegformerModel", "SegformerConfig"),
            *({**pyramid, **stages}, _IMAGE.replace("{side}", "64")),
        ),
        "Swin": (
            *(vision, "SwinModel", "SwinConfig"),
            {
                "image_size": 32,
                "patch_size": 4,
                "embed_dim": width // 2,
                "depths": [1, 1],
                "num_heads": [2, 2],
                "window_size": 4,
            },
            _IMAGE.replace("{side}", "32"),
        ),
        "Whisper's encoder": (
            *(audio, "models.whisper.modeling_whisper.WhisperEncoder", "WhisperConfig"),
            {
                **whisper,
                "encoder_ffn_dim": 2 * width,
                "num_mel_bins": 20,
                "max_source_positions": 50,
            },
            "torch.randn({batch}, 20, 100)",
        ),
        "wav2vec 2.0": (
            *(audio, "Wav2Vec2Model", "Wav2Vec2Config"),
            *(_base(width), "torch.randn({batch}, 3200)"),
        ),
    }
