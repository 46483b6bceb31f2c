"""transformers' language models: encoders, decoders, encoder-decoders, mixtures of experts, state-space models, generation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers

from benchmarks.zoo.model import TEXT_SHAPES, Call, Model

# What is made small in a configuration, where it has such a thing.
SMALL: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
    "d_model": 32,
    "num_layers": 2,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 37,
    "decoder_ffn_dim": 37,
    "d_ff": 40,
    "d_kv": 8,
    "num_heads": 4,
    "embedding_size": 16,
    "num_local_experts": 4,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "n_routed_experts": 4,
    "moe_intermediate_size": 24,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "max_source_positions": 64,
    "max_target_positions": 64,
    "num_decoder_layers": 2,
    "rotary_dim": 4,
    "expert_capacity": 8,
}


def small(name: str, **own: Any) -> Any:
    """The configuration of that name made small; `own` settings win. A setting of None is left as the configuration has it."""
    cls = getattr(transformers, name)
    default = cls()
    settings = {k: v for k, v in SMALL.items() if hasattr(default, k)} | own
    return cls(**{k: v for k, v in settings.items() if v is not KEEP})


KEEP = object()


def model(name: str, config: Callable[[], Any], seed: int = 0) -> Any:
    """The model class of that name with random weights, in eval mode."""
    torch.manual_seed(seed)
    return getattr(transformers, name)(config()).eval()


def ids(batch: int, length: int, seed: int = 0, vocab: int = 99) -> torch.Tensor:
    return torch.randint(3, vocab, (batch, length), generator=torch.Generator().manual_seed(seed))


def padded(batch: int, length: int) -> torch.Tensor:
    """An attention mask whose last row ends early."""
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[-1, length - 2 :] = 0
    return mask


def read(_: Any) -> list[Call]:
    return [((), {"input_ids": ids(b, n), "attention_mask": padded(b, n)}) for b, n in TEXT_SHAPES]


def read_plain(_: Any) -> list[Call]:
    return [((), {"input_ids": ids(b, n)}) for b, n in TEXT_SHAPES]


def translate(_: Any) -> list[Call]:
    return [
        ((), {"input_ids": ids(b, n), "attention_mask": padded(b, n), "decoder_input_ids": ids(b, n - 2, seed=1)}) for b, n in TEXT_SHAPES
    ]


def labelled(_: Any) -> list[Call]:
    return [((), {"input_ids": ids(b, n), "attention_mask": padded(b, n), "labels": ids(b, n, seed=2)}) for b, n in TEXT_SHAPES]


def row(
    name: str, config: str, calls: Callable[[Any], list[Call]] = read, *, train: bool = False, cls: str | None = None, **own: Any
) -> Model:
    """A model class and the configuration that makes it small."""
    return Model(name, lambda: model(cls or name, lambda: small(config, **own)), calls, train)


ENCODERS = [
    row("BertModel", "BertConfig", train=True),
    row("BertForMaskedLM", "BertConfig", labelled, train=True),
    row("RobertaModel", "RobertaConfig"),
    row(
        "DistilBertModel",
        "DistilBertConfig",
        dim=32,
        n_layers=2,
        n_heads=4,
        hidden_dim=37,
        hidden_size=KEEP,
        num_hidden_layers=KEEP,
        num_attention_heads=KEEP,
    ),
    row("AlbertModel", "AlbertConfig"),
    row("ElectraModel", "ElectraConfig"),
    row("DebertaModel", "DebertaConfig"),
    row("DebertaV2Model", "DebertaV2Config", relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=8),
    row("MPNetModel", "MPNetConfig"),
    row("MobileBertModel", "MobileBertConfig", embedding_size=32, intra_bottleneck_size=32, true_hidden_size=32),
    row("ModernBertModel", "ModernBertConfig", cls_token_id=1, sep_token_id=2, global_attn_every_n_layers=2, local_attention=8),
    row("RemBertModel", "RemBertConfig", input_embedding_size=16, output_embedding_size=16),
    row("FNetModel", "FNetConfig", read_plain),
    row("RoFormerModel", "RoFormerConfig"),
    row("XLMRobertaModel", "XLMRobertaConfig"),
    row("XLMModel", "XLMConfig", emb_dim=32, n_layers=2, n_heads=4, hidden_size=KEEP, num_hidden_layers=KEEP, num_attention_heads=KEEP),
    row(
        "FlaubertModel",
        "FlaubertConfig",
        emb_dim=32,
        n_layers=2,
        n_heads=4,
        hidden_size=KEEP,
        num_hidden_layers=KEEP,
        num_attention_heads=KEEP,
    ),
    row(
        "SqueezeBertModel",
        "SqueezeBertConfig",
        embedding_size=32,
        q_groups=2,
        k_groups=2,
        v_groups=2,
        post_attention_groups=1,
        intermediate_groups=2,
        output_groups=2,
        intermediate_size=64,
    ),
    row("LongformerModel", "LongformerConfig", attention_window=4),
    row("BigBirdModel", "BigBirdConfig", attention_type="original_full"),
    row("ConvBertModel", "ConvBertConfig"),
    row("FunnelModel", "FunnelConfig", block_sizes=[1, 1], d_head=8, d_inner=37, num_hidden_layers=KEEP, n_head=4),
    row("NystromformerModel", "NystromformerConfig", num_landmarks=4, segment_means_seq_len=4, conv_kernel_size=3),
    row("YosoModel", "YosoConfig", use_expectation=True),
    row("MegatronBertModel", "MegatronBertConfig"),
    row("NomicBertModel", "NomicBertConfig"),
    row("EsmModel", "EsmConfig", mask_token_id=4, position_embedding_type="rotary"),
    row(
        "CanineModel",
        "CanineConfig",
        read_plain,
        local_transformer_stride=8,
        num_hash_buckets=16,
        downsampling_rate=2,
        attend_from_chunk_width=8,
        attend_from_chunk_stride=8,
        attend_to_chunk_width=8,
        attend_to_chunk_stride=8,
    ),
    row("LayoutLMModel", "LayoutLMConfig"),
    row("SplinterModel", "SplinterConfig"),
]

DECODERS = [
    row("GPT2LMHeadModel", "GPT2Config", n_embd=32, n_layer=2, n_head=4, train=True),
    row("GPTNeoForCausalLM", "GPTNeoConfig", attention_types=[[["global", "local"], 1]], window_size=4),
    row("GPTNeoXForCausalLM", "GPTNeoXConfig"),
    row("GPTJForCausalLM", "GPTJConfig", n_embd=32, n_layer=2, n_head=4),
    row("OPTForCausalLM", "OPTConfig", ffn_dim=37, word_embed_proj_dim=32),
    row("BloomForCausalLM", "BloomConfig", n_layer=2, n_head=4),
    row("FalconForCausalLM", "FalconConfig", head_dim=KEEP),
    row("MptForCausalLM", "MptConfig", n_layers=2, n_heads=4),
    row("CodeGenForCausalLM", "CodeGenConfig", n_embd=32, n_layer=2, n_head=4),
    row("BioGptForCausalLM", "BioGptConfig"),
    row("XGLMForCausalLM", "XGLMConfig", attention_heads=4, ffn_dim=37),
    row("LlamaForCausalLM", "LlamaConfig", train=True),
    row("LlamaForCausalLM labels", "LlamaConfig", labelled, cls="LlamaForCausalLM", train=True),
    row("MistralForCausalLM", "MistralConfig", sliding_window=4),
    row("Qwen2ForCausalLM", "Qwen2Config"),
    row("Qwen3ForCausalLM", "Qwen3Config"),
    row("GemmaForCausalLM", "GemmaConfig"),
    row("Gemma2ForCausalLM", "Gemma2Config", sliding_window=4),
    row("Gemma3ForCausalLM", "Gemma3TextConfig", sliding_window=4),
    row("PhiForCausalLM", "PhiConfig"),
    row("Phi3ForCausalLM", "Phi3Config"),
    row("StableLmForCausalLM", "StableLmConfig"),
    row("OlmoForCausalLM", "OlmoConfig"),
    row("Olmo2ForCausalLM", "Olmo2Config"),
    row("CohereForCausalLM", "CohereConfig"),
    row("Starcoder2ForCausalLM", "Starcoder2Config"),
    row("PersimmonForCausalLM", "PersimmonConfig"),
    row("NemotronForCausalLM", "NemotronConfig"),
    row("GraniteForCausalLM", "GraniteConfig"),
    row("GlmForCausalLM", "GlmConfig"),
    row("SmolLM3ForCausalLM", "SmolLM3Config"),
    row("CTRLLMHeadModel", "CTRLConfig", n_embd=32, n_layer=2, n_head=4, dff=37),
    row("OpenAIGPTLMHeadModel", "OpenAIGPTConfig", n_embd=32, n_layer=2, n_head=4),
    row("XLNetLMHeadModel", "XLNetConfig", n_layer=2, n_head=4, d_inner=37, d_head=8, max_position_embeddings=KEEP),
    row("GPTBigCodeForCausalLM", "GPTBigCodeConfig", n_embd=32, n_layer=2, n_head=4),
]

EXPERTS = [
    row("MixtralForCausalLM", "MixtralConfig", train=True),
    row("Qwen2MoeForCausalLM", "Qwen2MoeConfig", shared_expert_intermediate_size=24),
    row("Qwen3MoeForCausalLM", "Qwen3MoeConfig"),
    row("OlmoeForCausalLM", "OlmoeConfig"),
    row("PhimoeForCausalLM", "PhimoeConfig"),
    row("GraniteMoeForCausalLM", "GraniteMoeConfig"),
    row("JetMoeForCausalLM", "JetMoeConfig", kv_channels=8),
    row("GptOssForCausalLM", "GptOssConfig", sliding_window=4),
    row(
        "DeepseekV2ForCausalLM",
        "DeepseekV2Config",
        kv_lora_rank=8,
        q_lora_rank=8,
        qk_nope_head_dim=8,
        qk_rope_head_dim=8,
        v_head_dim=8,
        n_group=1,
        topk_group=1,
        first_k_dense_replace=1,
        num_key_value_heads=4,
    ),
    row(
        "DeepseekV3ForCausalLM",
        "DeepseekV3Config",
        kv_lora_rank=8,
        q_lora_rank=8,
        qk_nope_head_dim=8,
        qk_rope_head_dim=8,
        v_head_dim=8,
        n_group=1,
        topk_group=1,
        first_k_dense_replace=1,
        num_key_value_heads=4,
    ),
    row("Glm4MoeForCausalLM", "Glm4MoeConfig", n_group=1, topk_group=1, first_k_dense_replace=1),
    row(
        "DbrxForCausalLM",
        "DbrxConfig",
        n_heads=4,
        n_layers=2,
        max_seq_len=64,
        attn_config={"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 1e4},
        ffn_config={"ffn_hidden_size": 24, "hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2},
    ),
    row("SwitchTransformersModel", "SwitchTransformersConfig", translate, num_sparse_encoder_layers=1, num_sparse_decoder_layers=1),
    row("NllbMoeModel", "NllbMoeConfig", translate, encoder_sparse_step=2, decoder_sparse_step=2),
]

STATES = [
    row("MambaForCausalLM", "MambaConfig", read_plain, state_size=4),
    row("Mamba2ForCausalLM", "Mamba2Config", read_plain, num_heads=8, head_dim=8, n_groups=2, state_size=4, chunk_size=8, expand=2),
    row("FalconMambaForCausalLM", "FalconMambaConfig", read_plain, state_size=4),
    row("RwkvForCausalLM", "RwkvConfig", read_plain, attention_hidden_size=32),
    row(
        "JambaForCausalLM",
        "JambaConfig",
        use_mamba_kernels=False,
        attn_layer_period=2,
        attn_layer_offset=1,
        mamba_d_state=4,
        mamba_dt_rank=4,
    ),
    row("RecurrentGemmaForCausalLM", "RecurrentGemmaConfig", lru_width=32, attention_window_size=8, num_hidden_layers=3),
    row("BambaForCausalLM", "BambaConfig", mamba_n_heads=8, mamba_d_head=8, mamba_d_state=4, mamba_chunk_size=8, attn_layer_indices=[1]),
    row(
        "Zamba2ForCausalLM",
        "Zamba2Config",
        mamba_d_state=4,
        mamba_headdim=8,
        n_mamba_heads=8,
        mamba_ngroups=1,
        chunk_size=8,
        layers_block_type=["mamba", "hybrid"],
        use_mem_eff_path=False,
        num_mem_blocks=1,
        attention_head_dim=KEEP,
        head_dim=KEEP,
        num_key_value_heads=4,
    ),
    row("Lfm2ForCausalLM", "Lfm2Config", layer_types=["conv", "full_attention"]),
]

TRANSLATORS = [
    row("T5Model", "T5Config", translate, train=True),
    row("T5ForConditionalGeneration", "T5Config", labelled, train=True, decoder_start_token_id=1),
    row("MT5Model", "MT5Config", translate),
    row("LongT5Model", "LongT5Config", translate, local_radius=4),
    row("UMT5Model", "UMT5Config", translate),
    row("BartModel", "BartConfig", translate, train=True),
    row("MBartModel", "MBartConfig", translate),
    row("PegasusModel", "PegasusConfig", translate),
    row("MarianModel", "MarianConfig", translate),
    row("BlenderbotModel", "BlenderbotConfig", translate),
    row("BlenderbotSmallModel", "BlenderbotSmallConfig", translate),
    row("M2M100Model", "M2M100Config", translate),
    row("PLBartModel", "PLBartConfig", translate),
    row("LEDModel", "LEDConfig", translate, attention_window=4, max_encoder_position_embeddings=64, max_decoder_position_embeddings=64),
    row(
        "ProphetNetModel",
        "ProphetNetConfig",
        translate,
        num_hidden_layers=KEEP,
        num_encoder_layers=2,
        num_encoder_attention_heads=4,
        num_decoder_attention_heads=4,
        ngram=2,
        num_buckets=8,
        relative_max_distance=16,
    ),
    row("BigBirdPegasusModel", "BigBirdPegasusConfig", translate, attention_type="original_full"),
    row("MvpModel", "MvpConfig", translate),
]

GENERATED = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}


def generator(
    name: str, base: str, config: str, calls: Callable[[Any], list[Call]] = read, how: dict[str, Any] | None = None, **own: Any
) -> Model:
    return Model(name, lambda: model(base, lambda: small(config, **own)), calls, generate=GENERATED | (how or {}))


GENERATION = [
    generator("generate Llama", "LlamaForCausalLM", "LlamaConfig"),
    generator("generate Llama static", "LlamaForCausalLM", "LlamaConfig", how={"cache_implementation": "static", "disable_compile": True}),
    generator("generate Mistral window", "MistralForCausalLM", "MistralConfig", sliding_window=4),
    generator("generate GPT2", "GPT2LMHeadModel", "GPT2Config", n_embd=32, n_layer=2, n_head=4),
    generator("generate GPT2 beams", "GPT2LMHeadModel", "GPT2Config", how={"num_beams": 2}, n_embd=32, n_layer=2, n_head=4),
    generator("generate Qwen3 sampled", "Qwen3ForCausalLM", "Qwen3Config", how={"do_sample": True, "top_k": 5}),
    generator("generate T5", "T5ForConditionalGeneration", "T5Config", decoder_start_token_id=1),
    generator("generate Bart", "BartForConditionalGeneration", "BartConfig"),
    generator("generate Mamba", "MambaForCausalLM", "MambaConfig", read_plain, state_size=4),
    generator("generate Mixtral", "MixtralForCausalLM", "MixtralConfig"),
]

FAMILIES = {
    "encoders": ENCODERS,
    "decoders": DECODERS,
    "experts": EXPERTS,
    "states": STATES,
    "translators": TRANSLATORS,
    "generation": GENERATION,
}
