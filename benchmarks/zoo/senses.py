"""transformers' models that see and hear, alone or beside text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers

from benchmarks.zoo.model import IMAGE_SHAPES, SOUND_SHAPES, TEXT_SHAPES, Call, Model
from benchmarks.zoo.texts import KEEP, ids, model, padded, row, small

SQUARES = tuple((b, 64, 64) for b, _, _ in IMAGE_SHAPES)


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def look(_: Any) -> list[Call]:
    return [((), {"pixel_values": noise(b, 3, h, w)}) for b, h, w in IMAGE_SHAPES]


def look_square(_: Any) -> list[Call]:
    return [((), {"pixel_values": noise(b, 3, h, w)}) for b, h, w in SQUARES]


def look_scaled(_: Any) -> list[Call]:
    return [((), {"pixel_values": noise(b, 3, h, w), "interpolate_pos_encoding": True}) for b, h, w in IMAGE_SHAPES]


def hear(_: Any) -> list[Call]:
    return [((), {"input_values": noise(b, n)}) for b, n in SOUND_SHAPES]


def hear_masked(_: Any) -> list[Call]:
    calls = []
    for b, n in SOUND_SHAPES:
        mask = torch.ones(b, n, dtype=torch.long)
        mask[-1, n - 400 :] = 0
        calls.append(((), {"input_values": noise(b, n), "attention_mask": mask}))
    return calls


VIT = {"image_size": 64, "patch_size": 16, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 40, "num_hidden_layers": 2}
W2V = {
    "conv_dim": (16, 16, 16),
    "conv_stride": (5, 4, 2),
    "conv_kernel": (10, 4, 3),
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
    "num_hidden_layers": 2,
    "mask_time_prob": 0.0,
}


def nested(name: str, cls: str, config: Callable[[], Any], calls: Callable[[Any], list[Call]], train: bool = False) -> Model:
    return Model(name, lambda: model(cls, config), calls, train)


VISION = [
    row("ViTModel", "ViTConfig", look_scaled, train=True, **VIT),
    row("ViTForImageClassification", "ViTConfig", look_square, **VIT),
    row("DeiTModel", "DeiTConfig", look_square, **VIT),
    row("BeitModel", "BeitConfig", look_square, **VIT),
    row("Dinov2Model", "Dinov2Config", look, **VIT),
    row("Dinov2WithRegistersModel", "Dinov2WithRegistersConfig", look, **VIT),
    row(
        "SwinModel",
        "SwinConfig",
        look,
        image_size=64,
        patch_size=4,
        embed_dim=16,
        depths=[1, 1],
        num_heads=[2, 2],
        window_size=4,
        hidden_size=KEEP,
        num_hidden_layers=KEEP,
        num_layers=KEEP,
        num_attention_heads=KEEP,
        train=True,
    ),
    row(
        "Swinv2Model",
        "Swinv2Config",
        look,
        image_size=64,
        patch_size=4,
        embed_dim=16,
        depths=[1, 1],
        num_heads=[2, 2],
        window_size=4,
        hidden_size=KEEP,
        num_hidden_layers=KEEP,
        num_layers=KEEP,
        num_attention_heads=KEEP,
    ),
    row("ResNetModel", "ResNetConfig", look, embedding_size=16, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1]),
    row("RegNetModel", "RegNetConfig", look, embedding_size=16, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], groups_width=8),
    row("MobileNetV2Model", "MobileNetV2Config", look, depth_multiplier=0.25),
    row(
        "MobileViTModel",
        "MobileViTConfig",
        look,
        image_size=64,
        hidden_sizes=[12, 16, 20],
        neck_hidden_sizes=[8, 8, 16, 24, 32, 32, 32],
        hidden_size=KEEP,
    ),
    row("SegformerModel", "SegformerConfig", look, hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1], num_attention_heads=[1, 1, 2, 2]),
    row(
        "SegformerForSemanticSegmentation",
        "SegformerConfig",
        look,
        hidden_sizes=[8, 8, 16, 16],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 1, 2, 2],
        decoder_hidden_size=16,
    ),
    row("PoolFormerModel", "PoolFormerConfig", look, hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1]),
    row(
        "LevitModel",
        "LevitConfig",
        look_square,
        image_size=64,
        hidden_sizes=[16, 24, 32],
        num_attention_heads=[1, 1, 2],
        depths=[1, 1, 1],
        key_dim=[8, 8, 8],
    ),
    row(
        "PvtModel",
        "PvtConfig",
        look_square,
        image_size=64,
        hidden_sizes=[8, 8, 16, 16],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 1, 2, 2],
    ),
    row("EfficientNetModel", "EfficientNetConfig", look, width_coefficient=0.25, depth_coefficient=0.2, hidden_dim=320),
    row(
        "FocalNetModel",
        "FocalNetConfig",
        look,
        image_size=64,
        embed_dim=16,
        depths=[1, 1],
        hidden_sizes=[16, 32],
        focal_levels=[2, 2],
        focal_windows=[3, 3],
        num_hidden_layers=KEEP,
        hidden_size=KEEP,
    ),
    row("BitModel", "BitConfig", look, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], embedding_size=16, num_groups=2),
    row(
        "DPTForDepthEstimation",
        "DPTConfig",
        look_square,
        backbone_out_indices=[0, 1, 2, 3],
        neck_hidden_sizes=[8, 8, 16, 16],
        fusion_hidden_size=16,
        **(VIT | {"num_hidden_layers": 4}),
    ),
    row(
        "GLPNForDepthEstimation",
        "GLPNConfig",
        look,
        hidden_sizes=[8, 8, 16, 16],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 1, 2, 2],
        decoder_hidden_size=16,
    ),
    row("YolosForObjectDetection", "YolosConfig", look_square, **(VIT | {"image_size": [64, 64]}), num_detection_tokens=5),
    row("ViTMAEModel", "ViTMAEConfig", look_square, **VIT),
    row(
        "SuperPointForKeypointDetection",
        "SuperPointConfig",
        look,
        encoder_hidden_sizes=[8, 8, 16, 16],
        decoder_hidden_size=16,
        keypoint_decoder_dim=65,
        descriptor_decoder_dim=16,
        hidden_size=KEEP,
    ),
]

AUDIO = [
    row("Wav2Vec2Model", "Wav2Vec2Config", hear, train=True, **W2V),
    row("Wav2Vec2Model masked", "Wav2Vec2Config", hear_masked, cls="Wav2Vec2Model", **W2V),
    row("HubertModel", "HubertConfig", hear, **W2V),
    row("WavLMModel", "WavLMConfig", hear, **W2V),
    row("SEWModel", "SEWConfig", hear, **W2V, squeeze_factor=2),
    row("UniSpeechModel", "UniSpeechConfig", hear, **W2V),
    row("Data2VecAudioModel", "Data2VecAudioConfig", hear, **W2V),
    row(
        "WhisperModel",
        "WhisperConfig",
        lambda _: [((), {"input_features": noise(b, 80, 32), "decoder_input_ids": ids(b, n)}) for b, n in TEXT_SHAPES],
        max_source_positions=16,
    ),
    row(
        "Speech2TextModel",
        "Speech2TextConfig",
        lambda _: [((), {"input_features": noise(b, 8 * n, 16), "decoder_input_ids": ids(b, n)}) for b, n in TEXT_SHAPES],
        input_feat_per_channel=16,
        num_conv_layers=2,
        conv_kernel_sizes=(3, 3),
        conv_channels=16,
    ),
    row(
        "ASTModel",
        "ASTConfig",
        lambda _: [((), {"input_values": noise(b, 32, 16)}) for b, _ in TEXT_SHAPES],
        max_length=32,
        num_mel_bins=16,
        patch_size=4,
    ),
    row(
        "EncodecModel",
        "EncodecConfig",
        lambda _: [((), {"input_values": noise(b, 1, 16 * n)}) for b, n in TEXT_SHAPES],
        num_filters=4,
        hidden_size=16,
        codebook_size=32,
        upsampling_ratios=[4, 2],
        codebook_dim=16,
        num_lstm_layers=1,
    ),
    row(
        "VitsModel",
        "VitsConfig",
        lambda _: [((), {"input_ids": ids(b, n, vocab=38)}) for b, n in TEXT_SHAPES],
        vocab_size=38,
        hidden_size=16,
        num_attention_heads=2,
        ffn_dim=24,
        flow_size=16,
        duration_predictor_filter_channels=16,
        duration_predictor_num_flows=2,
        upsample_initial_channel=16,
        upsample_rates=[4, 2],
        upsample_kernel_sizes=[8, 4],
        prior_encoder_num_flows=2,
        spectrogram_bins=9,
        posterior_encoder_num_wavenet_layers=2,
        prior_encoder_num_wavenet_layers=2,
        noise_scale=0.0,
        noise_scale_duration=0.0,
    ),
]


def image_text(images: Callable[[int], torch.Tensor]) -> Callable[[Any], list[Call]]:
    return lambda _: [((), {"input_ids": ids(b, n), "attention_mask": padded(b, n), "pixel_values": images(b)}) for b, n in TEXT_SHAPES]


def clip_like(name: str) -> Model:
    def config() -> Any:
        text = small(f"{name}TextConfig", projection_dim=16)
        vision = small(f"{name}VisionConfig", **VIT)
        return getattr(transformers, f"{name}Config")(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=16)

    return nested(f"{name}Model", f"{name}Model", config, image_text(lambda b: noise(b, 3, 64, 64)), train=name == "CLIP")


def llava() -> Any:
    return transformers.LlavaConfig(
        text_config=small("LlamaConfig").to_dict(),
        vision_config=small("CLIPVisionConfig", **VIT).to_dict(),
        image_token_index=98,
        vision_feature_layer=-1,
    )


def llava_calls(_: Any) -> list[Call]:
    """Sixteen image tokens in front of each text."""
    calls = []
    for b, n in TEXT_SHAPES:
        text = torch.cat([torch.full((b, 16), 98), ids(b, n, vocab=97)], 1)
        calls.append(((), {"input_ids": text, "attention_mask": torch.ones_like(text), "pixel_values": noise(b, 3, 64, 64)}))
    return calls


def paligemma_calls(model: Any) -> list[Call]:
    """With token types: without them, transformers' masks depend on whether a compiler is at work."""
    return [(a, k | {"token_type_ids": torch.zeros_like(k["input_ids"])}) for a, k in llava_calls(model)]


def qwen2_vl() -> Any:
    return transformers.Qwen2VLConfig(
        text_config=small(
            "Qwen2VLTextConfig", rope_parameters={"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
        ).to_dict(),
        vision_config={"depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 4, "mlp_ratio": 2, "patch_size": 4},
        image_token_id=96,
        video_token_id=97,
        vision_start_token_id=94,
        vision_end_token_id=95,
    )


def qwen2_vl_calls(_: Any) -> list[Call]:
    """Each text begins with one image of two by `k` merged patches."""
    calls = []
    for i, (b, n) in enumerate(TEXT_SHAPES):
        h, w = 4, 4 + 2 * i
        tokens = h * w // 4
        text = torch.cat([torch.full((b, 1), 94), torch.full((b, tokens), 96), ids(b, n, vocab=90)], 1)
        grid = torch.tensor([[1, h, w]] * b)
        pixels = noise(b * h * w, 3 * 2 * 4 * 4)
        calls.append(
            (
                (),
                {
                    "input_ids": text,
                    "attention_mask": torch.ones_like(text),
                    "pixel_values": pixels,
                    "image_grid_thw": grid,
                    "mm_token_type_ids": (text == 96).int(),
                },
            )
        )
    return calls


def blip() -> Any:
    return transformers.BlipConfig(
        text_config=small("BlipTextConfig", encoder_hidden_size=32, projection_dim=16).to_dict(),
        vision_config=small("BlipVisionConfig", **VIT).to_dict(),
        projection_dim=16,
    )


def vilt_calls(_: Any) -> list[Call]:
    return [
        (
            (),
            {
                "input_ids": ids(b, n),
                "attention_mask": padded(b, n),
                "pixel_values": noise(b, 3, 64, 64),
                "pixel_mask": torch.ones(b, 64, 64),
            },
        )
        for b, n in TEXT_SHAPES
    ]


def vision_encoder_decoder() -> Any:
    return transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        small("ViTConfig", **VIT), small("GPT2Config", n_embd=32, n_layer=2, n_head=4, add_cross_attention=True)
    )


def caption_calls(_: Any) -> list[Call]:
    return [((), {"pixel_values": noise(b, 3, 64, 64), "decoder_input_ids": ids(b, n)}) for b, n in TEXT_SHAPES]


def paligemma() -> Any:
    return transformers.PaliGemmaConfig(
        text_config=small("GemmaConfig").to_dict() | {"model_type": "gemma"},
        vision_config=small("SiglipVisionConfig", **VIT).to_dict() | {"model_type": "siglip_vision_model"},
        image_token_index=98,
        projection_dim=32,
        hidden_size=32,
    )


def detr() -> Any:
    backbone = small("ResNetConfig", embedding_size=16, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], out_features=["stage4"])
    return small(
        "DetrConfig", use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=backbone, num_queries=5
    )


MIXED = [
    clip_like("CLIP"),
    clip_like("Siglip"),
    clip_like("AltCLIP"),
    clip_like("ChineseCLIP"),
    nested("LlavaForConditionalGeneration", "LlavaForConditionalGeneration", llava, llava_calls, train=True),
    nested("Qwen2VLForConditionalGeneration", "Qwen2VLForConditionalGeneration", qwen2_vl, qwen2_vl_calls),
    nested("BlipModel", "BlipModel", blip, image_text(lambda b: noise(b, 3, 64, 64))),
    nested("PaliGemma", "PaliGemmaForConditionalGeneration", paligemma, paligemma_calls),
    nested("VisionEncoderDecoder", "VisionEncoderDecoderModel", vision_encoder_decoder, caption_calls),
    nested("DetrForObjectDetection", "DetrForObjectDetection", detr, look),
    row("ViltModel", "ViltConfig", vilt_calls, **VIT),
    row("GitModel", "GitConfig", image_text(lambda b: noise(b, 3, 64, 64)), vision_config=VIT),
    row(
        "VisualBertModel",
        "VisualBertConfig",
        lambda _: [((), {"input_ids": ids(b, n), "visual_embeds": noise(b, 4, 16)}) for b, n in TEXT_SHAPES],
        visual_embedding_dim=16,
    ),
    row(
        "TimeSeriesTransformerModel",
        "TimeSeriesTransformerConfig",
        lambda _: [
            (
                (),
                {
                    "past_values": noise(b, 20),
                    "past_time_features": noise(b, 20, 2),
                    "past_observed_mask": torch.ones(b, 20),
                    "future_values": noise(b, 6),
                    "future_time_features": noise(b, 6, 2),
                },
            )
            for b, _ in TEXT_SHAPES
        ],
        prediction_length=6,
        context_length=13,
        lags_sequence=[1, 2, 7],
        num_time_features=2,
        d_model=16,
    ),
    row(
        "PatchTSTModel",
        "PatchTSTConfig",
        lambda _: [((), {"past_values": noise(b, 32, 3)}) for b, _ in TEXT_SHAPES],
        num_input_channels=3,
        context_length=32,
        patch_length=8,
        patch_stride=8,
        ffn_dim=37,
    ),
    row(
        "PerceiverModel",
        "PerceiverConfig",
        lambda _: [((), {"inputs": noise(b, n, 16)}) for b, n in TEXT_SHAPES],
        d_latents=16,
        d_model=16,
        num_latents=4,
        num_self_attends_per_block=2,
        num_self_attention_heads=2,
        num_cross_attention_heads=2,
    ),
    row(
        "DecisionTransformerModel",
        "DecisionTransformerConfig",
        lambda _: [
            (
                (),
                {
                    "states": noise(b, n, 5),
                    "actions": noise(b, n, 3),
                    "rewards": noise(b, n, 1),
                    "returns_to_go": noise(b, n, 1),
                    "timesteps": torch.arange(n).repeat(b, 1),
                    "attention_mask": torch.ones(b, n),
                },
            )
            for b, n in TEXT_SHAPES
        ],
        state_dim=5,
        act_dim=3,
        n_layer=2,
        n_head=4,
    ),
]

FAMILIES = {"vision": VISION, "audio": AUDIO, "mixed": MIXED}
