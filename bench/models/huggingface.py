"""Models of the transformers library in small, with random weights: nothing is downloaded."""
import torch

from .irregular import Program

# What a configuration calls its sizes. It gets those that it has.
SIZES = {'vocab_size': 99, 'hidden_size': 32, 'd_model': 32, 'dim': 32, 'n_embd': 32, 'num_hidden_layers': 2,
         'num_layers': 2, 'n_layers': 2, 'n_layer': 2, 'encoder_layers': 2, 'decoder_layers': 2,
         'num_decoder_layers': 2, 'num_attention_heads': 4, 'num_heads': 4, 'n_heads': 4, 'n_head': 4,
         'encoder_attention_heads': 4, 'decoder_attention_heads': 4, 'num_key_value_heads': 2, 'head_dim': 8, 'd_kv': 8,
         'intermediate_size': 64, 'hidden_dim': 64, 'd_ff': 64, 'ffn_dim': 64, 'encoder_ffn_dim': 64, 'decoder_ffn_dim': 64,
         'max_position_embeddings': 64, 'n_positions': 64, 'image_size': 32, 'patch_size': 8, 'num_channels': 3,
         'pad_token_id': 0, 'bos_token_id': 1, 'eos_token_id': 2, 'decoder_start_token_id': 2}
SPEECH = {'conv_dim': (16, 16), 'conv_kernel': (10, 3), 'conv_stride': (5, 2), 'num_feat_extract_layers': 2,
          'num_conv_pos_embeddings': 16, 'num_conv_pos_embedding_groups': 2, 'mask_time_prob': 0.0, 'vocab_size': 20}


def tokens(length=12):
    ids = torch.randint(3, 99, (2, length))
    return {'input_ids': ids, 'labels': ids.clone()}


def pixels():
    return {'pixel_values': torch.randn(2, 3, 32, 32), 'labels': torch.tensor([0, 1])}


def sound():
    return {'input_values': torch.randn(2, 400), 'labels': torch.randint(1, 20, (2, 4))}


def spectrum():
    return {'input_features': torch.randn(2, 16, 40), 'labels': torch.randint(3, 99, (2, 7))}


# row: (class, configuration, what that has besides SIZES, inputs)
ROWS = {
    'bert': ('BertForMaskedLM', 'BertConfig', {}, tokens),
    'roberta': ('RobertaForMaskedLM', 'RobertaConfig', {}, tokens),
    'distilbert': ('DistilBertForMaskedLM', 'DistilBertConfig', {}, tokens),
    'gpt2': ('GPT2LMHeadModel', 'GPT2Config', {}, tokens),
    'opt': ('OPTForCausalLM', 'OPTConfig', {'word_embed_proj_dim': 32, 'layerdrop': 0.1}, tokens),
    'llama': ('LlamaForCausalLM', 'LlamaConfig', {}, tokens),
    'mistral': ('MistralForCausalLM', 'MistralConfig', {}, tokens),
    'mixtral': ('MixtralForCausalLM', 'MixtralConfig', {'num_local_experts': 4}, tokens),
    'qwen2': ('Qwen2ForCausalLM', 'Qwen2Config', {}, tokens),
    'gemma2': ('Gemma2ForCausalLM', 'Gemma2Config', {}, tokens),
    'mamba': ('MambaForCausalLM', 'MambaConfig', {'state_size': 4}, tokens),
    'recurrent_gemma': ('RecurrentGemmaForCausalLM', 'RecurrentGemmaConfig',
                        {'num_hidden_layers': 3, 'num_key_value_heads': 1, 'lru_width': 32}, tokens),
    't5': ('T5ForConditionalGeneration', 'T5Config', {}, tokens),
    'bart': ('BartForConditionalGeneration', 'BartConfig', {'encoder_layerdrop': 0.1, 'decoder_layerdrop': 0.1,
                                                            'forced_eos_token_id': None}, tokens),
    'whisper': ('WhisperForConditionalGeneration', 'WhisperConfig',
                {'num_mel_bins': 16, 'max_source_positions': 20, 'max_target_positions': 40, 'encoder_layerdrop': 0.1,
                 'decoder_layerdrop': 0.1, 'apply_spec_augment': False}, spectrum),
    'wav2vec2': ('Wav2Vec2ForCTC', 'Wav2Vec2Config', {**SPEECH, 'layerdrop': 0.1}, sound),
    'wavlm': ('WavLMForCTC', 'WavLMConfig', {**SPEECH, 'layerdrop': 0.1}, sound),
    'vit': ('ViTForImageClassification', 'ViTConfig', {}, pixels),
    'convnext': ('ConvNextForImageClassification', 'ConvNextConfig',
                 {'hidden_sizes': [8, 16, 24, 32], 'depths': [1, 1, 2, 1]}, pixels),
    'segformer': ('SegformerForImageClassification', 'SegformerConfig',
                  {'depths': [1] * 4, 'hidden_sizes': [8, 8, 16, 16], 'num_attention_heads': [1, 1, 2, 2]}, pixels),
}


def make(name):
    import transformers
    transformers.logging.set_verbosity_error()
    model, configuration, more, inputs = ROWS[name]
    configuration = getattr(transformers, configuration)
    has = vars(configuration())
    sizes = {key: value for key, value in SIZES.items() if isinstance(has.get(key), int)}
    config = configuration(**{**sizes, **more})
    if hasattr(config, 'use_cache'):
        config.use_cache = False
    return Program(getattr(transformers, model)(config), [((), inputs())], lambda output, args: output.loss)
